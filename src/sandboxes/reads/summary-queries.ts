import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { STATUSES, type SandboxStatus } from '../../spec/statuses.js';

interface StatusCount {
  status: SandboxStatus;
  count: number;
  /** Those without room on a worker. */
  waiting: number;
}

/** Each status is counted up to `most`, without the sandboxes that wait in a pool. */
export async function countStatuses(sql: Sql, orgId: string, most: number): Promise<StatusCount[]> {
  const { rows } = await sql.query<StatusCount & Record<string, unknown>>(
    prepared(
      `select given.status, count(*)::int as count,
         (count(*) filter (where found.status_reason = 'insufficient_capacity'))::int as waiting
       from unnest($2::text[]) as given (status)
       cross join lateral (
         select s.status_reason from sandboxes s
         where s.org_id = $1 and s.status = given.status and s.removed_at is null and not s.warm
         limit $3
       ) as found
       group by given.status`,
      [orgId, [...STATUSES], most],
    ),
  );
  return rows;
}
