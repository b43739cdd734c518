import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { CSV_LINE_END, csvFieldSql } from '../lib/csv.js';
import type { WindowPart, TimeRange } from './window.js';

export interface UsageFilter {
  orgId: string;
  sandboxIds: readonly string[] | undefined;
  /** Only the time in which a sandbox had all of these labels. */
  labels: Readonly<Record<string, string>>;
}

export type Format = 'json' | 'csv';
/** The formats of streamed reports. `focus`: a row as `focus-charges.ts` reads it. */
export const REPORT_FORMATS = ['json', 'csv', 'focus'] as const;
export type RowFormat = (typeof REPORT_FORMATS)[number];

export interface Query {
  text: string;
  values: readonly unknown[];
}

const seconds = (micros: string) => `(${micros} * 0.000001)::float8`;

/** The text of a row. The day and the id come first and have fixed lengths: `merge.ts` compares them in the text. */
const LINES: Record<RowFormat, (row: string, orgId: () => string) => string> = {
  json: (row) =>
    `'{"day":"' || ${row}.day || 'T00:00:00Z","sandbox_id":"' || ${row}.sandbox_id
      || '","vcpu_seconds":' || ${seconds(`${row}.vcpu_micros`)}
      || ',"mem_mib_seconds":' || ${seconds(`${row}.memory_mib_micros`)}
      || ',"disk_mib_seconds":' || ${seconds(`${row}.disk_mib_micros`)} || '}'`,
  csv: (row) =>
    `${row}.day || ',' || ${row}.sandbox_id || ',' || ${csvFieldSql(`${row}.name`)}
      || ',' || ${seconds(`${row}.vcpu_micros`)} || ',' || ${seconds(`${row}.memory_mib_micros`)}
      || ',' || ${seconds(`${row}.disk_mib_micros`)}`,
  focus: (row, orgId) =>
    `${row}.day || ',' || ${row}.sandbox_id || ',[' || ${row}.vcpu_micros || ',' || ${row}.memory_mib_micros
      || ',' || ${row}.disk_mib_micros || '],' || json_build_array(${row}.name, (${labelsOnDay(row, orgId())}))`,
};

/** The last value that each label had on the day. */
function labelsOnDay(row: string, orgId: string): string {
  const midnight = (day: string) => `(${day})::timestamp at time zone 'UTC'`;
  return `select json_object_agg(l.key, l.value order by l.key) from (
    select distinct on (p.key) p.key, p.value from label_periods p
    where p.org_id = ${orgId} and p.sandbox_id = ${row}.sandbox_id
      and p.from_at < ${midnight(`${row}.day + 1`)} and p.to_at > ${midnight(`${row}.day`)}
    order by p.key, p.from_at desc) l`;
}

/** The text of a stored day, which has its JSON in a column. */
const storedLine = (format: RowFormat, orgId: () => string) =>
  format === 'json' ? 'u.json' : LINES[format]('u', orgId);

export const SEPARATORS: Record<RowFormat, string> = { json: ',', csv: CSV_LINE_END, focus: CSV_LINE_END };

/**
 * A CTE of the selected sandboxes and the times at which they had the labels. `whole`: they had them during all of
 * `days`, so that their stored days apply. Undefined if the filter selects everything.
 */
export function selectedSandboxes(
  c: Conditions,
  { orgId, sandboxIds, labels }: UsageFilter,
  days: TimeRange | undefined,
): string | undefined {
  const pairs = Object.entries(labels);
  if (pairs.length === 0) {
    if (sandboxIds === undefined) return undefined;
    return `selected (sandbox_id, times, whole) as materialized (
      select distinct id, '{(,)}'::tstzmultirange, true from unnest(${c.parameter(sandboxIds)}::uuid[]) as id)`;
  }
  const keys = c.parameter(pairs.map(([key]) => key));
  const values = c.parameter(pairs.map(([, value]) => value));
  const among = sandboxIds === undefined ? '' : `and p.sandbox_id = any (${c.parameter(sandboxIds)}::uuid[])`;
  return `had (sandbox_id, times) as (
      select p.sandbox_id, range_agg(tstzrange(p.from_at, p.to_at))
      from label_periods p
      join unnest(${keys}::text[], ${values}::text[]) as wanted (key, value)
        on p.key = wanted.key and p.value = wanted.value
      where p.org_id = ${c.parameter(orgId)} ${among}
      group by p.sandbox_id, p.key
    ), selected (sandbox_id, times, whole) as materialized (
      select sandbox_id, range_intersect_agg(times), ${covers(c, 'range_intersect_agg(times)', days)}
      from had group by sandbox_id having count(*) = ${c.parameter(pairs.length)})`;
}

/** A condition: the times contain all of `days`. */
export function covers(c: Conditions, times: string, days: TimeRange | undefined): string {
  if (!days) return 'false';
  return `${times} @> tstzrange(${c.parameter(days.from)}, ${c.parameter(days.to)})`;
}

/**
 * The periods of runs that no stored day covers. These are open runs and runs on the days that the window cuts. So are
 * runs of sandboxes that had the labels only for a part of the time.
 */
export function periodsToSum(
  c: Conditions,
  orgId: string,
  part: WindowPart,
  among?: 'selected' | 'held',
): string {
  const join = among
    ? `join ${among} k on k.sandbox_id = r.sandbox_id cross join lateral unnest(k.times) as had`
    : '';
  const value = among === 'held' ? 'k.label_values,' : '';
  const cut = among ? { from: ', lower(had)', to: ', upper(had)' } : { from: '', to: '' };
  const runs = ({ from, to }: TimeRange, condition: string) => {
    const [begin, end] = [`${c.parameter(from)}::timestamptz`, `${c.parameter(to)}::timestamptz`];
    return `select ${value} r.sandbox_id, r.vcpus, r.memory_mib, r.disk_mib,
        greatest(r.started_at, ${begin}${cut.from}) as from_at, least(r.stopped_at, ${end}${cut.to}) as to_at
      from runs r ${join}
      where r.org_id = ${c.parameter(orgId)} and r.started_at < ${end} and ${condition}`;
  };
  const closed = (range: TimeRange, more = '') =>
    runs(
      range,
      `r.started_at is not null and r.stopped_at > ${c.parameter(range.from)}::timestamptz ${more}`,
    );
  return [
    runs(part, 'r.end_reason is null'),
    ...part.edges.map((edge) => closed(edge)),
    ...(among && part.whole ? [closed(part.whole, 'and not k.whole')] : []),
  ].join('\n      union all ');
}

const SUMS_BY_SANDBOX = `
  select d.day, t.sandbox_id, sum(d.micros::numeric * t.vcpus) as vcpu_micros,
    sum(d.micros::numeric * t.memory_mib) as memory_mib_micros, sum(d.micros::numeric * t.disk_mib) as disk_mib_micros
  from periods t
  cross join lateral days_of(t.from_at, t.to_at) d
  group by d.day, t.sandbox_id`;

export function storedDays(c: Conditions, orgId: string, { from, to }: TimeRange): string {
  return `u.org_id = ${c.parameter(orgId)} and u.day >= ${dateOf(c, from)} and u.day < ${dateOf(c, to)}`;
}

function dateOf(c: Conditions, instant: string): string {
  return `${c.parameter(instant.slice(0, 10))}::date`;
}

/** Rows (day, name, id, line) summed from runs, by day, name and id. They include the stored part of the same day. */
export function summedRows(filter: UsageFilter, part: WindowPart, format: RowFormat): Query {
  const c = new Conditions();
  const selected = selectedSandboxes(c, filter, part.wholeOfWindow);
  const periods = periodsToSum(c, filter.orgId, part, selected === undefined ? undefined : 'selected');
  const whole = selected
    ? 'and exists (select from selected k where k.sandbox_id = u.sandbox_id and k.whole)'
    : '';
  const stored = part.whole
    ? // "offset 0" keeps the planner from joining: it would read a month to save some lookups.
      `left join lateral (select u.* from usage_days u
         where ${storedDays(c, filter.orgId, part.whole)} and u.sandbox_id = l.sandbox_id and u.day = l.day ${whole}
         offset 0) u on true`
    : '';
  const sum = (column: string) =>
    `l.${column}${part.whole ? ` + coalesce(u.${column}, 0)` : ''} as ${column}`;
  const text = `with ${selected ? `${selected}, ` : ''}periods as (${periods}), summed as (${SUMS_BY_SANDBOX}),
    finished as (
      select l.day, s.name, l.sandbox_id, ${['vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'].map(sum).join(', ')}
      from summed l
      join sandboxes s on s.org_id = ${c.parameter(filter.orgId)} and s.id = l.sandbox_id
      ${stored})
    select f.day::text, f.name, f.sandbox_id::text, ${LINES[format]('f', () => c.parameter(filter.orgId))}
    from finished f
    order by f.day, f.name, f.sandbox_id`;
  return { text, values: c.values };
}

/** Rows (line, name) of stored days, by day, name and id, which is the order of the index. */
export function storedRows(filter: UsageFilter, part: TimeRange, days: TimeRange, format: RowFormat): Query {
  const c = new Conditions();
  const selected = selectedSandboxes(c, filter, days);
  const text = `${selected ? `with ${selected}` : ''}
    select ${storedLine(format, () => c.parameter(filter.orgId))}, u.name
    from usage_days u
    where ${storedDays(c, filter.orgId, part)}
      ${selected ? 'and u.sandbox_id in (select k.sandbox_id from selected k where k.whole)' : ''}
    order by u.day, u.name, u.sandbox_id`;
  return { text, values: c.values };
}

export type RowKey = readonly [day: string, name: string, id: string];

export const BEFORE_FIRST_ROW: RowKey = ['-infinity', '', '00000000-0000-0000-0000-000000000000'];

/** One row: the joined lines of the next `count` stored days after a key, their number, and the key of the last. */
export function storedText(
  orgId: string,
  whole: TimeRange,
  format: RowFormat,
  [day, name, id]: RowKey,
  count: number,
): Query {
  const c = new Conditions();
  const text = `
    select string_agg(b.line, ${c.parameter(SEPARATORS[format])}), count(*),
      (array_agg(b.day::text))[count(*)], (array_agg(b.name))[count(*)], (array_agg(b.sandbox_id::text))[count(*)]
    from (
      select u.day, u.name, u.sandbox_id, ${storedLine(format, () => c.parameter(orgId))} as line
      from usage_days u
      where ${storedDays(c, orgId, whole)}
        and (u.day, u.name, u.sandbox_id)
          > (${c.parameter(day)}::date, ${c.parameter(name)}, ${c.parameter(id)}::uuid)
      order by u.day, u.name, u.sandbox_id
      limit ${c.parameter(count)}) b`;
  return { text, values: c.values };
}

/** One JSON object for each sandbox that has a row, also for removed ones. */
export function usedSandboxes(filter: UsageFilter, part: WindowPart): Query {
  const c = new Conditions();
  const selected = selectedSandboxes(c, filter, part.wholeOfWindow);
  const periods = periodsToSum(c, filter.orgId, part, selected === undefined ? undefined : 'selected');
  const stored = part.whole
    ? `union all select u.sandbox_id from usage_days u where ${storedDays(c, filter.orgId, part.whole)}
       ${selected ? 'and u.sandbox_id in (select k.sandbox_id from selected k where k.whole)' : ''}`
    : '';
  const text = `with ${selected ? `${selected}, ` : ''}periods as (${periods})
    select '{"id":"' || s.id || '","name":' || to_json(s.name) || ',"slug":' || to_json(s.slug) || '}'
    from sandboxes s
    where s.org_id = ${c.parameter(filter.orgId)}
      and s.id in (select t.sandbox_id from periods t where t.from_at < t.to_at ${stored})
    order by s.name, s.id`;
  return { text, values: c.values };
}

/** An open run has a row on every day of the window since its start. */
export async function countOpenRuns(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*) from runs where org_id = $1 and end_reason is null',
    [orgId],
  );
  return rows[0]!.count;
}

export async function getOrgName(sql: Sql, orgId: string): Promise<string> {
  const { rows } = await sql.query<{ name: string }>('select name from orgs where id = $1', [orgId]);
  return rows[0]!.name;
}

export async function listOrgIds(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>('select id from orgs order by created_at, id');
  return rows.map(({ id }) => id);
}
