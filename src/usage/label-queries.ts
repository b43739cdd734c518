import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { csvFieldSql } from '../lib/csv.js';
import type { Quantities } from '../prices/price.js';
import { labelledSandboxes } from './label-times.js';
import {
  periodsToSum,
  selectedSandboxes,
  storedDays,
  type Format,
  type Query,
  type UsageFilter,
} from './queries.js';
import { largestGroupsOf, type GroupDayRow, type LargestGroups } from './summary-queries.js';
import { LONGEST_WINDOW_DAYS, splitWindow, type Window, type WindowPart } from './window.js';

const QUANTITIES: Record<Format, string> = {
  json: `'"vcpu_seconds":' || f.vcpu_seconds || ',"mem_mib_seconds":' || f.memory_mib_seconds
      || ',"disk_mib_seconds":' || f.disk_mib_seconds`,
  csv: `f.vcpu_seconds || ',' || f.memory_mib_seconds || ',' || f.disk_mib_seconds`,
};

/** The values of a row. Without a label they are null: JSON has none, CSV has empty fields. */
const HEADS: Record<Format, (keys: number) => string> = {
  json: (keys) => `'{"day":"' || f.day || 'T00:00:00Z",' || coalesce(
      ${keys === 1 ? `'"value":' || to_json(f.label_values[1]) || ',' ||` : ''} '"values":' || to_json(f.label_values) || ',', '')`,
  csv: (keys) => `f.day || ',' || case when f.label_values is null then 'unlabelled,' else 'labelled,' end
      || ${Array.from({ length: keys }, (_, index) => `coalesce(${csvFieldSql(`f.label_values[${index + 1}]`)}, '') || ','`).join(' || ')}`,
};

const COLUMNS = ['micros', 'vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'] as const;

/** A row whose text has no end: the cost follows it. Quantities are whole numbers as text. */
export type LabelRow = [
  labelled: boolean,
  day: string,
  text: string,
  vcpu: string,
  memory: string,
  disk: string,
];

export function quantitiesOf(vcpu: string, memory: string, disk: string): Partial<Quantities> {
  return { vcpu_hour: BigInt(vcpu), memory_gib_hour: BigInt(memory), disk_gib_hour: BigInt(disk) };
}

/**
 * Rows by UTC day and values. The last row of a day is the usage with none of the keys: all usage less the labelled.
 */
export function labelRows(
  filter: UsageFilter,
  keys: readonly string[],
  part: WindowPart,
  format: Format,
): Query {
  const c = new Conditions();
  const text = `with ${usageByValues(c, filter, keys, part)}
    select f.label_values is not null, f.day::text, ${HEADS[format](keys.length)} || ${QUANTITIES[format]},
      f.vcpu_micros::text, f.memory_mib_micros::text, f.disk_mib_micros::text
    from finished f
    order by f.day, f.label_values collate "C" nulls last`;
  return { text, values: c.values };
}

/** The `limit` combinations of values with the most usage. None of the keys is a combination too. */
export async function largestCombinations(
  sql: Sql,
  filter: UsageFilter,
  keys: readonly string[],
  window: Window,
  limit: number,
): Promise<LargestGroups> {
  const [part] = splitWindow(window, LONGEST_WINDOW_DAYS);
  if (!part) return largestGroupsOf([]);
  const c = new Conditions();
  const { rows } = await sql.query<GroupDayRow>(
    `with ${usageByValues(c, filter, keys, part)},
     largest as (
       select t.label_values, t.count,
         (row_number() over (order by t.most desc, t.label_values collate "C") - 1)::int as place
       from (select f.label_values, sum(f.vcpu_micros) as most, count(*) over () as count
         from finished f group by f.label_values) t
       order by place
       limit ${c.parameter(limit)})
     select f.day::text, l.place, coalesce(f.label_values, array_fill(null::text, array[${keys.length}])) as names, l.count,
       f.vcpu_micros::text as vcpu_hour, f.memory_mib_micros::text as memory_gib_hour, f.disk_mib_micros::text as disk_gib_hour
     from largest l join finished f on f.label_values is not distinct from l.label_values
     order by f.day, l.place`,
    c.values,
  );
  return largestGroupsOf(rows);
}

/** CTEs up to `finished`: the usage by UTC day and values. */
function usageByValues(
  c: Conditions,
  filter: UsageFilter,
  keys: readonly string[],
  part: WindowPart,
): string {
  const { orgId } = filter;
  const selected = selectedSandboxes(c, filter, part.wholeOfWindow);
  const held = labelledSandboxes(c, orgId, keys, selected !== undefined, part.wholeOfWindow);
  const all = periodsToSum(c, orgId, part, selected === undefined ? undefined : 'selected');
  const labelled = periodsToSum(c, orgId, part, 'held');
  const sums = COLUMNS.map((column) => `sum(p.${column}) as ${column}`).join(', ');
  const parts = (periods: string, value: string) =>
    `select ${value} d.day, d.micros::numeric as micros, d.micros::numeric * t.vcpus as vcpu_micros,
       d.micros::numeric * t.memory_mib as memory_mib_micros, d.micros::numeric * t.disk_mib as disk_mib_micros
     from ${periods} t cross join lateral days_of(t.from_at, t.to_at) d`;
  const stored = (value: string, join: string, condition: string) =>
    part.whole
      ? `union all select ${value} u.day, u.micros, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros
         from usage_days u ${join} where ${storedDays(c, orgId, part.whole)} ${condition}`
      : '';
  const left = COLUMNS.map((column) => `t.${column} - coalesce(sum(v.${column}), 0) as ${column}`).join(', ');
  const totals = COLUMNS.map((column) => `t.${column}`).join(', ');
  const seconds = ['vcpu', 'memory_mib', 'disk_mib'].map(
    (name) => `(${name}_micros * 0.000001)::float8 as ${name}_seconds`,
  );
  const onlyPicked = selected
    ? 'and u.sandbox_id in (select k.sandbox_id from selected k where k.whole)'
    : '';
  return `${selected ? `${selected}, ` : ''}${held},
    all_periods as (${all}),
    labelled_periods as (${labelled}),
    by_day as materialized (
      select p.day, ${sums} from (
        ${parts('all_periods', '')} ${stored('', '', onlyPicked)}) p
      group by p.day),
    by_value as materialized (
      select p.day, p.label_values, ${sums} from (
        ${parts('labelled_periods', 't.label_values,')}
        ${stored('h.label_values,', 'join held h on h.sandbox_id = u.sandbox_id and h.whole', '')}) p
      group by p.day, p.label_values),
    finished as (
      select day, label_values, vcpu_micros, memory_mib_micros, disk_mib_micros, ${seconds.join(', ')} from (
        select v.day, v.label_values, ${COLUMNS.map((column) => `v.${column}`).join(', ')} from by_value v
        union all
        select t.day, null, ${left}
        from by_day t left join by_value v on v.day = t.day
        group by t.day, ${totals}) r
      where r.micros > 0)`;
}
