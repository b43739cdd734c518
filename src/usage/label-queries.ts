import { Conditions } from '../lib/conditions.js';
import { csvFieldSql } from '../lib/csv.js';
import {
  labelledSandboxes,
  periodsToSum,
  selectedSandboxes,
  storedDays,
  type Format,
  type Query,
  type UsageFilter,
} from './queries.js';
import type { WindowPart } from './window.js';

const QUANTITIES: Record<Format, string> = {
  json: `'"vcpu_seconds":' || f.vcpu_seconds || ',"mem_mib_seconds":' || f.memory_mib_seconds
      || ',"disk_mib_seconds":' || f.disk_mib_seconds || '}'`,
  csv: `f.vcpu_seconds || ',' || f.memory_mib_seconds || ',' || f.disk_mib_seconds`,
};

const HEADS: Record<Format, string> = {
  json: `'{"day":"' || f.day || 'T00:00:00Z",' || coalesce('"value":' || to_json(f.value) || ',', '')`,
  csv: `f.day || ',' || case when f.value is null then 'unlabelled,' else 'labelled,' || ${csvFieldSql('f.value')} end || ','`,
};

const COLUMNS = ['micros', 'vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'] as const;

/** Rows (labelled, line) by UTC day and value. The last row of a day is the usage without the label: all usage less the labelled. */
export function labelRows(filter: UsageFilter, key: string, part: WindowPart, format: Format): Query {
  const c = new Conditions();
  const { orgId } = filter;
  const selected = selectedSandboxes(c, filter, part.wholeOfWindow);
  const held = labelledSandboxes(c, orgId, key, selected !== undefined, part.wholeOfWindow);
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
  const text = `with ${selected ? `${selected}, ` : ''}${held},
    all_periods as (${all}),
    labelled_periods as (${labelled}),
    by_day as materialized (
      select p.day, ${sums} from (
        ${parts('all_periods', '')} ${stored('', '', onlyPicked)}) p
      group by p.day),
    by_value as materialized (
      select p.day, p.value, ${sums} from (
        ${parts('labelled_periods', 't.value,')}
        ${stored('h.value,', 'join held h on h.sandbox_id = u.sandbox_id and h.whole', '')}) p
      group by p.day, p.value),
    finished as (
      select day, value, ${seconds.join(', ')} from (
        select v.day, v.value, ${COLUMNS.map((column) => `v.${column}`).join(', ')} from by_value v
        union all
        select t.day, null, ${left}
        from by_day t left join by_value v on v.day = t.day
        group by t.day, ${totals}) r
      where r.micros > 0)
    select f.value is not null, ${HEADS[format]} || ${QUANTITIES[format]}
    from finished f
    order by f.day, f.value collate "C" nulls last`;
  return { text, values: c.values };
}
