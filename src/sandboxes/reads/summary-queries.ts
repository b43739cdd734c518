import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { STATUSES, type SandboxStatus } from '../../spec/statuses.js';

interface StatusCount {
  status: SandboxStatus;
  /** With the sandboxes that wait in a pool. */
  count: number;
  /** Those that wait in a pool. */
  warm: number;
}

/**
 * The first count has only the conditions of the index of statuses, so it reads no rows of sandboxes. With a condition
 * on `warm` the summary of 100,000 sandboxes took 660 ms instead of 14, where the quotas took 8.
 * `npm run bench -- --only summary` prints the current time.
 */
export async function countStatuses(sql: Sql, orgId: string, most: number): Promise<StatusCount[]> {
  const { rows } = await sql.query<StatusCount & Record<string, unknown>>(
    prepared(
      `select given.status,
         (select count(*)::int from (
            select from sandboxes s
            where s.org_id = $1 and s.status = given.status and s.removed_at is null limit $3
          ) as found) as count,
         (select count(*)::int from (
            select from sandboxes s
            where s.org_id = $1 and s.status = given.status and s.removed_at is null and s.warm limit $3
          ) as found) as warm
       from unnest($2::text[]) as given (status)`,
      [orgId, [...STATUSES], most],
    ),
  );
  return rows;
}

/** The starts without room on a worker. */
export async function countWaiting(sql: Sql, orgId: string, most: number): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    prepared(
      `select count(*)::int as count from (
         select from sandboxes s
         where s.org_id = $1 and s.status = 'starting' and s.removed_at is null and not s.warm
           and s.status_reason = 'insufficient_capacity'
         limit $2
       ) as found`,
      [orgId, most],
    ),
  );
  return rows[0]!.count;
}
