import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { storageLimit } from '../quotas/limits.js';
import { getLimits } from '../quotas/queries.js';

/** A storage limit requires a cap: nothing else would enforce it. */
export async function checkCap(sql: Sql, orgId: string, capacityGib: number | null): Promise<void> {
  const limits = await getLimits(sql, orgId);
  const limitGib = limits ? storageLimit(limits) : null;
  if (limitGib === null || (capacityGib !== null && capacityGib <= limitGib)) return;
  if (capacityGib === null) {
    throw new ApiError(
      'quota_exceeded',
      `the storage of the organization is limited to ${limitGib} GiB: give the volume a capacity_gib`,
      { quota: 'max_total_storage_gib', limit: limitGib, used: null },
    );
  }
  throw new ApiError(
    'invalid_request',
    `capacity_gib must be at most ${limitGib}: the organization has no more storage`,
    { field: 'capacity_gib' },
  );
}
