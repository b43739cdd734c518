import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { LIMITS, SWITCHES, type Limits, type PoolUsage } from './limits.js';

const COLUMNS = [...LIMITS, ...SWITCHES].join(', ');

/** The quotas of a new organization: none. */
export async function insertQuotas(sql: Sql, orgId: string, at: Instant): Promise<void> {
  await sql.query('insert into quotas (org_id, updated_at) values ($1, $2)', [orgId, at]);
}

/** For organizations that come by import. */
export async function completeQuotas(sql: Sql, at: Instant): Promise<void> {
  await sql.query(
    'insert into quotas (org_id, updated_at) select id, $1 from orgs on conflict (org_id) do nothing',
    [at],
  );
}

export async function getLimits(sql: Sql, orgId: string): Promise<Limits | undefined> {
  const { rows } = await sql.query<Limits>(`select ${COLUMNS} from quotas where org_id = $1`, [orgId]);
  return rows[0];
}

/** Holds the row until the transaction ends: who counts under it counts what all before it have taken. */
export async function lockLimits(sql: Sql, orgId: string): Promise<Limits | undefined> {
  const { rows } = await sql.query<Limits>(`select ${COLUMNS} from quotas where org_id = $1 for update`, [
    orgId,
  ]);
  return rows[0];
}

/** Changes what is named, of a row that the transaction has locked. */
export async function updateLimits(
  sql: Sql,
  orgId: string,
  change: Partial<Limits>,
  at: Instant,
): Promise<void> {
  const columns = Object.keys(change).map((column, index) => `${column} = $${index + 3}`);
  await sql.query(`update quotas set ${[...columns, 'updated_at = $2'].join(', ')} where org_id = $1`, [
    orgId,
    at,
    ...Object.values(change),
  ]);
}

/** All that exist, whatever their status. */
export async function countSandboxes(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*) from sandboxes where org_id = $1 and removed_at is null',
    [orgId],
  );
  return rows[0]!.count;
}

/** The starting and running ones. Imported ones do not run here. */
export async function countRunning(sql: Sql, orgId: string, ephemeral: boolean): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `select count(*) from sandboxes
     where org_id = $1 and ephemeral = $2 and removed_at is null and runtime is not null
       and status in ('starting', 'running')`,
    [orgId, ephemeral],
  );
  return rows[0]!.count;
}

/** All caps together, in GiB. A volume that is being deleted counts until it is purged: it can come back. */
export async function sumOfCaps(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ sum: number }>(
    `select coalesce(sum(capacity_gib), 0)::bigint as sum from volumes where org_id = $1 and removed_at is null`,
    [orgId],
  );
  return rows[0]!.sum;
}

/** What ran in `[since, now)`. Summed in integer microseconds, divided once. */
export async function poolUsage(sql: Sql, orgId: string, since: Instant, now: Instant): Promise<PoolUsage> {
  const { rows } = await sql.query<PoolUsage & Record<string, unknown>>(
    `with stretches as (
       select vcpus, memory_mib, disk_mib,
         (extract(epoch from least(stopped_at, $3::timestamptz)) * 1000000)::bigint
           - (extract(epoch from greatest(started_at, $2::timestamptz)) * 1000000)::bigint as micros
       from runs
       where org_id = $1 and started_at < $3 and (stopped_at is null or stopped_at > $2)
     )
     select
       (coalesce(sum(micros::numeric * vcpus), 0) / 3600000000)::float8 as vcpu_hours_used,
       (coalesce(sum(micros::numeric * memory_mib), 0) / (3600000000 * 1024::numeric))::float8
         as memory_gib_hours_used,
       (coalesce(sum(micros::numeric * disk_mib), 0) / (3600000000 * 1024::numeric))::float8
         as disk_gib_hours_used
     from stretches`,
    [orgId, since, now],
  );
  return rows[0]!;
}

/** The organizations whose hours are a wall and that have something starting or running. */
export async function orgsAtRisk(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    `select q.org_id from quotas q
     where q.hard_cap and num_nonnulls(q.included_vcpu_hours, q.included_memory_gib_hours, q.included_disk_gib_hours) > 0
       and exists (
         select from sandboxes s
         where s.org_id = q.org_id and s.removed_at is null and s.runtime is not null
           and s.status in ('starting', 'running'))`,
  );
  return rows.map(({ org_id }) => org_id);
}

/** The starting and running sandboxes, by id, after `after`. */
export async function listRunning(
  sql: Sql,
  orgId: string,
  after: string | null,
  limit: number,
): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select id from sandboxes
     where org_id = $1 and removed_at is null and runtime is not null and status in ('starting', 'running')
       and ($2::uuid is null or id > $2)
     order by id
     limit $3`,
    [orgId, after, limit],
  );
  return rows.map(({ id }) => id);
}
