import { csvFieldSql } from '../lib/csv.js';
import type { Query, RowFormat } from './queries.js';
import type { Window } from './window.js';

const LINES: Record<RowFormat, string> = {
  json: `'{"day":"' || t.day || 'T00:00:00Z","volume_id":"' || t.volume_id || '","mib_seconds":' || t.mib_seconds || '}'`,
  csv: `t.day || ',' || t.volume_id || ',' || coalesce(${csvFieldSql('t.name')}, '') || ',' || t.mib_seconds`,
  focus: `t.day || ',' || t.volume_id || ',[' || t.mib_micros || '],' || json_build_array(t.name, t.labels, t.type)`,
};

/**
 * Accruals and pauses that overlap the window, cut to it. The id is that of a volume, a snapshot or a paused sandbox.
 * An accrual of this service covers at most 48 hours, so the query reads only those that end soon after the window.
 * Longer imported ones have an index of their own.
 */
export const ACCRUALS_IN_WINDOW = `
  cut as (
    select volume_id, used_mib, greatest(from_at, $2::timestamptz) as from_at,
      least(to_at, $4::timestamptz, $3::timestamptz) as to_at
    from (
      select volume_id, used_mib, from_at, to_at from accruals
      where org_id = $1 and to_at > $2 and to_at < least($3::timestamptz, $4::timestamptz) + interval '48 hours'
        and to_at - from_at <= interval '48 hours'
      union all
      select volume_id, used_mib, from_at, to_at from accruals
      where org_id = $1 and to_at > $2 and to_at - from_at > interval '48 hours'
      union all
      select sandbox_id, disk_mib + memory_mib, from_at, coalesce(to_at, 'infinity') from pauses
      where org_id = $1 and (to_at is null or to_at > $2)) a
    where from_at < least($3::timestamptz, $4::timestamptz))`;

const PAUSED = '(select distinct sandbox_id from pauses where org_id = $1)';

/** The names and labels of what accruals are of. A deleted one has no row, or only the type of one. */
const STORED = `(
  select id, name, labels::jsonb as labels, null::text as type from volumes where org_id = $1 and removed_at is null
  union all
  select id, case when removed_at is null then name end, case when removed_at is null then labels end, 'Snapshot'
  from snapshots where org_id = $1
  union all
  select s.id, case when s.removed_at is null then s.name end,
    case when s.removed_at is null then s.spec::jsonb -> 'labels' end, 'Paused sandbox'
  from ${PAUSED} p join sandboxes s on s.org_id = $1 and s.id = p.sandbox_id)`;

/** Rows (line) by UTC day and name of the volume or snapshot; deleted ones are last. */
export function storageRows(orgId: string, { since, until, now }: Window, format: RowFormat): Query {
  const text = `with ${ACCRUALS_IN_WINDOW}, sums as (
      select d.day, c.volume_id, (sum(d.micros::numeric * c.used_mib) * 0.000001)::float8 as mib_seconds,
        round(sum(d.micros::numeric * c.used_mib)) as mib_micros
      from cut c
      cross join lateral days_of(c.from_at, c.to_at) d
      group by d.day, c.volume_id),
    totals as (
      select s.*, v.name, v.labels, v.type
      from sums s
      left join ${STORED} v on v.id = s.volume_id)
    select ${LINES[format]} from totals t
    order by t.day, t.name nulls last, t.volume_id`;
  return { text, values: [orgId, since, until, now] };
}

/** One JSON object for each existing volume, snapshot or sandbox that has a row. */
export function usedVolumes(orgId: string, { since, until, now }: Window): Query {
  const text = `with ${ACCRUALS_IN_WINDOW}
    select '{"id":"' || v.id || '","name":' || coalesce(to_json(v.name)::text, 'null') || '}'
    from (
      select id, name from volumes where org_id = $1 and removed_at is null
      union all
      select id, name from snapshots where org_id = $1 and removed_at is null
      union all
      select s.id, s.name from ${PAUSED} p
      join sandboxes s on s.org_id = $1 and s.id = p.sandbox_id and s.removed_at is null) v
    where v.id in (select c.volume_id from cut c where c.from_at < c.to_at)
    order by v.name nulls last, v.id`;
  return { text, values: [orgId, since, until, now] };
}
