import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { inUnits } from '../usage/price.js';
import { computeTotals } from '../usage/summary-queries.js';
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

/** What ran in `[since, now)`: days that are over as they are stored. Exact in integers, divided once. */
export async function poolUsage(sql: Sql, orgId: string, since: Instant, now: Instant): Promise<PoolUsage> {
  const { vcpu_hour, memory_gib_hour, disk_gib_hour } = await computeTotals(sql, orgId, {
    since,
    until: now,
    now,
  });
  return {
    vcpu_hours_used: inUnits('vcpu_hour', vcpu_hour),
    memory_gib_hours_used: inUnits('memory_gib_hour', memory_gib_hour),
    disk_gib_hours_used: inUnits('disk_gib_hour', disk_gib_hour),
  };
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
