import type { Sql } from '../db/pool.js';
import type { Window } from './window.js';

/**
 * Splits `[from_at, to_at)` of each row of `clipped` at UTC midnights. Everything stays in integer microseconds; only
 * the finished sum is divided, by an exact decimal multiplication, and rounded once to the nearest double.
 */
const DAYS = `
  days as (
    select c.*, day.day,
      (extract(epoch from least(c.to_at, day.day + interval '1 day')) * 1000000)::bigint
        - (extract(epoch from greatest(c.from_at, day.day)) * 1000000)::bigint as micros
    from clipped c
    cross join lateral generate_series(date_trunc('day', c.from_at), c.to_at, interval '1 day') as day (day)
    -- What begins after "now" has no length yet, and must not have a negative one.
    where c.from_at < c.to_at and day.day < c.to_at
  )`;

export interface SandboxUsageRow {
  day: string;
  sandbox_id: string;
  name: string;
  slug: string;
  vcpu_seconds: number;
  mem_mib_seconds: number;
  disk_mib_seconds: number;
}

/** A row for each sandbox and UTC day on which it ran, by day, then name. */
export async function sandboxUsage(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<SandboxUsageRow[]> {
  const { rows } = await sql.query<SandboxUsageRow & Record<string, unknown>>(
    `with clipped as (
       select sandbox_id, vcpus, memory_mib, disk_mib,
         greatest(started_at, $2::timestamptz) as from_at,
         least(coalesce(stopped_at, $4::timestamptz), $4::timestamptz, $3::timestamptz) as to_at
       from runs
       where org_id = $1 and started_at < $3 and (stopped_at is null or stopped_at > $2)
     ), ${DAYS}
     select d.day, d.sandbox_id, s.name, s.slug,
       (sum(d.micros::numeric * d.vcpus) * 0.000001)::float8 as vcpu_seconds,
       (sum(d.micros::numeric * d.memory_mib) * 0.000001)::float8 as mem_mib_seconds,
       (sum(d.micros::numeric * d.disk_mib) * 0.000001)::float8 as disk_mib_seconds
     from days d
     join sandboxes s on s.org_id = $1 and s.id = d.sandbox_id
     group by d.day, d.sandbox_id, s.name, s.slug
     having sum(d.micros) > 0
     order by d.day, s.name, d.sandbox_id`,
    [orgId, since, until, now],
  );
  return rows;
}

export interface StorageUsageRow {
  day: string;
  volume_id: string;
  mib_seconds: number;
}

/** A row for each volume and UTC day on which something was stored, by day, then name; volumes that are gone last. */
export async function storageUsage(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<StorageUsageRow[]> {
  const { rows } = await sql.query<StorageUsageRow & Record<string, unknown>>(
    `with clipped as (
       select volume_id, used_mib,
         greatest(from_at, $2::timestamptz) as from_at,
         least(to_at, $4::timestamptz, $3::timestamptz) as to_at
       from accruals
       where org_id = $1 and from_at < $3 and to_at > $2
     ), ${DAYS}
     select d.day, d.volume_id,
       (sum(d.micros::numeric * d.used_mib) * 0.000001)::float8 as mib_seconds
     from days d
     left join volumes v on v.org_id = $1 and v.id = d.volume_id and v.removed_at is null
     group by d.day, d.volume_id, v.name
     having sum(d.micros) > 0
     order by d.day, v.name nulls last, d.volume_id`,
    [orgId, since, until, now],
  );
  return rows;
}

/** The names of the volumes among `ids` that still exist. */
export async function volumeIdentities(
  sql: Sql,
  orgId: string,
  ids: readonly string[],
): Promise<{ id: string; name: string | null }[]> {
  const { rows } = await sql.query<{ id: string; name: string | null }>(
    `select id, name from volumes
     where org_id = $1 and id = any ($2::uuid[]) and removed_at is null
     order by name nulls last, id`,
    [orgId, ids],
  );
  return rows;
}
