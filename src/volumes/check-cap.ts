import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { storageLimit } from '../quotas/limits.js';
import { getLimits } from '../quotas/queries.js';
import type { Runtime } from '../engine/runtime.js';

/**
 * A storage limit of the organization requires a cap, because nothing else would enforce it. Without one, a cap is
 * refused where the runtime cannot hold sandboxes to it: no sandbox could mount the volume, and official clients cannot
 * remove the cap.
 */
export async function checkCap(
  sql: Sql,
  { bounds, capabilities, name }: Runtime,
  orgId: string,
  capacityGib: number | null,
): Promise<void> {
  const { volumeCapGib = Infinity } = bounds;
  if (capacityGib !== null && capacityGib > volumeCapGib) {
    throw new ApiError(
      'invalid_request',
      `capacity_gib must be at most ${volumeCapGib}: a larger disk of a volume fits in no file`,
      { field: 'capacity_gib' },
    );
  }
  const limits = await getLimits(sql, orgId);
  const limitGib = limits ? storageLimit(limits) : null;
  if (limitGib === null) {
    if (capacityGib === null || capabilities.has('volume_caps')) return;
    throw new ApiError(
      'invalid_request',
      `the ${name} runtime cannot hold sandboxes to the cap of a volume, so none could mount it: leave capacity_gib out`,
      { field: 'capacity_gib' },
    );
  }
  if (capacityGib !== null && capacityGib <= limitGib) return;
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
