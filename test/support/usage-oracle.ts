import type { Sql } from '../../src/db/pool.js';
import type { Window } from '../../src/usage/window.js';

const DAYS = `with clipped as (
    select sandbox_id, vcpus, memory_mib, disk_mib, greatest(started_at, $2::timestamptz) as from_at,
      least(coalesce(stopped_at, $4::timestamptz), $4::timestamptz, $3::timestamptz) as to_at
    from runs
    where org_id = $1 and started_at < $3 and (stopped_at is null or stopped_at > $2)
  ), days as (
    select c.*, day.day,
      (extract(epoch from least(c.to_at, day.day + interval '1 day')) * 1000000)::bigint
        - (extract(epoch from greatest(c.from_at, day.day)) * 1000000)::bigint as micros
    from clipped c
    cross join lateral generate_series(date_trunc('day', c.from_at), c.to_at, interval '1 day') as day (day)
    where c.from_at < c.to_at and day.day < c.to_at
  )`;

/**
 * An oracle: the usage of an organization's sandboxes, summed over its runs alone, as text in the form of the API's
 * rows. It shares no code with stored days. Tests compare values with it, the benchmark times.
 */
export async function plainUsage(sql: Sql, orgId: string, { since, until, now }: Window): Promise<unknown[]> {
  const { rows } = await sql.query(
    `${DAYS}
     select to_char(d.day, 'YYYY-MM-DD"T00:00:00Z"') as day, d.sandbox_id,
       (sum(d.micros::numeric * d.vcpus) * 0.000001)::float8 as vcpu_seconds,
       (sum(d.micros::numeric * d.memory_mib) * 0.000001)::float8 as mem_mib_seconds,
       (sum(d.micros::numeric * d.disk_mib) * 0.000001)::float8 as disk_mib_seconds
     from days d
     join sandboxes s on s.org_id = $1 and s.id = d.sandbox_id
     group by d.day, d.sandbox_id, s.name
     having sum(d.micros) > 0
     order by d.day, s.name, d.sandbox_id`,
    [orgId, since, until, now],
  );
  return rows;
}

/** The sums of all sandboxes by day, in whole microseconds times resources. */
export async function plainTotals(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<{ day: string; used: Record<string, bigint> }[]> {
  const { rows } = await sql.query<Record<'day' | 'vcpu' | 'memory' | 'disk', string>>(
    `${DAYS}
     select to_char(d.day, 'YYYY-MM-DD') as day, sum(d.micros::numeric * d.vcpus)::text as vcpu,
       sum(d.micros::numeric * d.memory_mib)::text as memory, sum(d.micros::numeric * d.disk_mib)::text as disk
     from days d
     group by d.day
     having sum(d.micros) > 0
     order by d.day`,
    [orgId, since, until, now],
  );
  return rows.map(({ day, vcpu, memory, disk }) => ({
    day,
    used: { vcpu_hour: BigInt(vcpu), memory_gib_hour: BigInt(memory), disk_gib_hour: BigInt(disk) },
  }));
}
