import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { CSV_LINE_END, csvFieldSql } from '../lib/csv.js';
import type { Slab, Stretch } from './window.js';

/** Whose usage is asked for, and of which of its sandboxes. */
export interface Scope {
  orgId: string;
  /** All of them unless said. */
  sandboxIds: readonly string[] | undefined;
  /** What ran while the sandbox had all of these. */
  labels: Readonly<Record<string, string>>;
}

export type Format = 'json' | 'csv';

export interface Query {
  text: string;
  values: readonly unknown[];
}

const seconds = (micros: string) => `(${micros} * 0.000001)::float8`;

/** How a row leaves. `row`: what has its columns. The day and the id come first, each of a fixed length. */
const LINES: Record<Format, (row: string) => string> = {
  json: (row) =>
    `'{"day":"' || ${row}.day || 'T00:00:00Z","sandbox_id":"' || ${row}.sandbox_id
      || '","vcpu_seconds":' || ${seconds(`${row}.vcpu_micros`)}
      || ',"mem_mib_seconds":' || ${seconds(`${row}.memory_mib_micros`)}
      || ',"disk_mib_seconds":' || ${seconds(`${row}.disk_mib_micros`)} || '}'`,
  csv: (row) =>
    `${row}.day || ',' || ${row}.sandbox_id || ',' || ${csvFieldSql(`${row}.name`)}
      || ',' || ${seconds(`${row}.vcpu_micros`)} || ',' || ${seconds(`${row}.memory_mib_micros`)}
      || ',' || ${seconds(`${row}.disk_mib_micros`)}`,
};

/** The same of a stored day (u), which has it ready. */
const STORED_LINES: Record<Format, string> = { json: 'u.json', csv: LINES.csv('u') };

/** What stands between two lines. */
export const SEPARATORS: Record<Format, string> = { json: ',', csv: CSV_LINE_END };

/**
 * Which sandboxes are meant and when they had the labels. `whole`: all the time of `days`, so that stored days stand for
 * them. Undefined: all sandboxes, always.
 */
export function pickedSandboxes(
  c: Conditions,
  { orgId, sandboxIds, labels }: Scope,
  days: Stretch | undefined,
): string | undefined {
  const pairs = Object.entries(labels);
  if (pairs.length === 0) {
    if (sandboxIds === undefined) return undefined;
    return `picked (sandbox_id, times, whole) as materialized (
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
    ), picked (sandbox_id, times, whole) as materialized (
      select sandbox_id, range_intersect_agg(times), ${covers(c, 'range_intersect_agg(times)', days)}
      from had group by sandbox_id having count(*) = ${c.parameter(pairs.length)})`;
}

/** When sandboxes had a label of this key, and which. `picked`: only while they were meant. */
export function labelledSandboxes(
  c: Conditions,
  orgId: string,
  key: string,
  picked: boolean,
  days: Stretch | undefined,
): string {
  return `labelled (sandbox_id, value, times) as (
      select p.sandbox_id, p.value, range_agg(tstzrange(p.from_at, p.to_at))
      from label_periods p
      where p.org_id = ${c.parameter(orgId)} and p.key = ${c.parameter(key)}
      group by p.sandbox_id, p.value
    ), held (sandbox_id, value, times, whole) as materialized (
      select l.sandbox_id, l.value, l.times ${picked ? '* k.times' : ''},
        ${covers(c, 'l.times', days)} ${picked ? 'and k.whole' : ''}
      from labelled l ${picked ? 'join picked k on k.sandbox_id = l.sandbox_id' : ''})`;
}

/** Without whole days there are no stored ones to stand for anything. */
function covers(c: Conditions, times: string, days: Stretch | undefined): string {
  if (!days) return 'false';
  return `${times} @> tstzrange(${c.parameter(days.from)}, ${c.parameter(days.to)})`;
}

/**
 * Stretches of runs that no stored sum stands for: open ones, those around the whole days, and those of sandboxes that
 * did not have the labels all the time.
 */
export function looseStretches(
  c: Conditions,
  orgId: string,
  slab: Slab,
  /** Where it stands which sandboxes are meant, and when; all of them unless said. */
  among?: 'picked' | 'held',
): string {
  const join = among
    ? `join ${among} k on k.sandbox_id = r.sandbox_id cross join lateral unnest(k.times) as had`
    : '';
  const value = among === 'held' ? 'k.value,' : '';
  const cut = among ? { from: ', lower(had)', to: ', upper(had)' } : { from: '', to: '' };
  const runs = ({ from, to }: Stretch, condition: string) => {
    const [begin, end] = [`${c.parameter(from)}::timestamptz`, `${c.parameter(to)}::timestamptz`];
    return `select ${value} r.sandbox_id, r.vcpus, r.memory_mib, r.disk_mib,
        greatest(r.started_at, ${begin}${cut.from}) as from_at, least(r.stopped_at, ${end}${cut.to}) as to_at
      from runs r ${join}
      where r.org_id = ${c.parameter(orgId)} and r.started_at < ${end} and ${condition}`;
  };
  const closed = (part: Stretch, more = '') =>
    runs(part, `r.started_at is not null and r.stopped_at > ${c.parameter(part.from)}::timestamptz ${more}`);
  return [
    runs(slab, 'r.end_reason is null'),
    ...slab.edges.map((edge) => closed(edge)),
    ...(among && slab.whole ? [closed(slab.whole, 'and not k.whole')] : []),
  ].join('\n      union all ');
}

/** Sums of what `looseStretches` gives. */
const LOOSE_SUMS = `
  select d.day, t.sandbox_id, sum(d.micros::numeric * t.vcpus) as vcpu_micros,
    sum(d.micros::numeric * t.memory_mib) as memory_mib_micros, sum(d.micros::numeric * t.disk_mib) as disk_mib_micros
  from stretches t
  cross join lateral days_of(t.from_at, t.to_at) d
  group by d.day, t.sandbox_id`;

/** The condition that takes the stored days of a slab. */
export function storedDays(c: Conditions, orgId: string, { from, to }: Stretch): string {
  return `u.org_id = ${c.parameter(orgId)} and u.day >= ${dateOf(c, from)} and u.day < ${dateOf(c, to)}`;
}

function dateOf(c: Conditions, instant: string): string {
  return `${c.parameter(instant.slice(0, 10))}::date`;
}

/**
 * Finished rows (day, name, id, line), by day, name and id, wherever a run has to be looked at. What is stored of the same
 * day is in them.
 */
export function looseRows(scope: Scope, slab: Slab, format: Format): Query {
  const c = new Conditions();
  const picked = pickedSandboxes(c, scope, slab.wholeOfWindow);
  const stretches = looseStretches(c, scope.orgId, slab, picked === undefined ? undefined : 'picked');
  const whole = picked
    ? 'and exists (select from picked k where k.sandbox_id = u.sandbox_id and k.whole)'
    : '';
  const stored = slab.whole
    ? // Cut off from the planner, which would read a month to save some look-ups.
      `left join lateral (select u.* from usage_days u
         where ${storedDays(c, scope.orgId, slab.whole)} and u.sandbox_id = l.sandbox_id and u.day = l.day ${whole}
         offset 0) u on true`
    : '';
  const sum = (column: string) =>
    `l.${column}${slab.whole ? ` + coalesce(u.${column}, 0)` : ''} as ${column}`;
  const text = `with ${picked ? `${picked}, ` : ''}stretches as (${stretches}), loose as (${LOOSE_SUMS}),
    finished as (
      select l.day, s.name, l.sandbox_id, ${['vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'].map(sum).join(', ')}
      from loose l
      join sandboxes s on s.org_id = ${c.parameter(scope.orgId)} and s.id = l.sandbox_id
      ${stored})
    select f.day::text, f.name, f.sandbox_id::text, ${LINES[format]('f')}
    from finished f
    order by f.day, f.name, f.sandbox_id`;
  return { text, values: c.values };
}

/** Rows (line, name) of a part of the stored `days` of a window, by day, name and id: the order they are stored in. */
export function storedRows(scope: Scope, part: Stretch, days: Stretch, format: Format): Query {
  const c = new Conditions();
  const picked = pickedSandboxes(c, scope, days);
  const text = `${picked ? `with ${picked}` : ''}
    select ${STORED_LINES[format]}, u.name
    from usage_days u
    where ${storedDays(c, scope.orgId, part)}
      ${picked ? 'and u.sandbox_id in (select k.sandbox_id from picked k where k.whole)' : ''}
    order by u.day, u.name, u.sandbox_id`;
  return { text, values: c.values };
}

/** Where a stored row stands among the others. */
export type Place = readonly [day: string, name: string, id: string];

/** Before every row. */
export const FIRST_PLACE: Place = ['-infinity', '', '00000000-0000-0000-0000-000000000000'];

/**
 * One row: the lines of the next `count` stored days after a place, put together by the database, how many they are, and
 * the place of the last one.
 */
export function storedText(
  orgId: string,
  whole: Stretch,
  format: Format,
  [day, name, id]: Place,
  count: number,
): Query {
  const c = new Conditions();
  const text = `
    select string_agg(b.line, ${c.parameter(SEPARATORS[format])}), count(*),
      (array_agg(b.day::text))[count(*)], (array_agg(b.name))[count(*)], (array_agg(b.sandbox_id::text))[count(*)]
    from (
      select u.day, u.name, u.sandbox_id, ${STORED_LINES[format]} as line
      from usage_days u
      where ${storedDays(c, orgId, whole)}
        and (u.day, u.name, u.sandbox_id)
          > (${c.parameter(day)}::date, ${c.parameter(name)}, ${c.parameter(id)}::uuid)
      order by u.day, u.name, u.sandbox_id
      limit ${c.parameter(count)}) b`;
  return { text, values: c.values };
}

/** The identities (one JSON object a row) of all sandboxes that have a row, removed ones too. */
export function usedSandboxes(scope: Scope, slab: Slab): Query {
  const c = new Conditions();
  const picked = pickedSandboxes(c, scope, slab.wholeOfWindow);
  const stretches = looseStretches(c, scope.orgId, slab, picked === undefined ? undefined : 'picked');
  const stored = slab.whole
    ? `union all select u.sandbox_id from usage_days u where ${storedDays(c, scope.orgId, slab.whole)}
       ${picked ? 'and u.sandbox_id in (select k.sandbox_id from picked k where k.whole)' : ''}`
    : '';
  const text = `with ${picked ? `${picked}, ` : ''}stretches as (${stretches})
    select '{"id":"' || s.id || '","name":' || to_json(s.name) || ',"slug":' || to_json(s.slug) || '}'
    from sandboxes s
    where s.org_id = ${c.parameter(scope.orgId)}
      and s.id in (select t.sandbox_id from stretches t where t.from_at < t.to_at ${stored})
    order by s.name, s.id`;
  return { text, values: c.values };
}

/** How many runs are under way: each has a row on every day of a window since it began. */
export async function countOpenRuns(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*) from runs where org_id = $1 and end_reason is null',
    [orgId],
  );
  return rows[0]!.count;
}

export async function listOrgIds(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>('select id from orgs order by created_at, id');
  return rows.map(({ id }) => id);
}
