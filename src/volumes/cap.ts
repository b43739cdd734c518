import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { getLimits } from '../quotas/queries.js';

/** Refuses a cap that the organization could not have even with no other volume. In GiB. */
export async function checkCap(sql: Sql, orgId: string, capacityGib: number): Promise<void> {
  const most = (await getLimits(sql, orgId))?.max_total_storage_gib ?? null;
  if (most === null || capacityGib <= most) return;
  throw new ApiError(
    'invalid_request',
    `capacity_gib must be at most ${most}: the organization has no more storage`,
    { field: 'capacity_gib' },
  );
}
