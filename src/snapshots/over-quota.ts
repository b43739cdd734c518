import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { getLimits, sumSnapshots } from '../quotas/queries.js';

const GIB = 1024 ** 3;

/** `bytes`: those that the snapshot would be charged with. */
export async function refuseOverQuota(sql: Sql, orgId: string, bytes: number): Promise<void> {
  const { limitGib, used, left } = await readRoom(sql, orgId);
  if (bytes <= left) return;
  throw new ApiError(
    'quota_exceeded',
    `max_snapshot_gib: the snapshot has ${bytes} bytes, and the snapshots of the organization have ${used} bytes of at most ${limitGib} GiB`,
  );
}

/** The bytes that a further snapshot may be charged with. Infinity: there is no limit. */
export async function bytesLeft(sql: Sql, orgId: string): Promise<number> {
  return Math.max(0, (await readRoom(sql, orgId)).left);
}

async function readRoom(
  sql: Sql,
  orgId: string,
): Promise<{ limitGib: number | null; used: number; left: number }> {
  const limitGib = (await getLimits(sql, orgId))?.max_snapshot_gib ?? null;
  if (limitGib === null) return { limitGib, used: 0, left: Infinity };
  const used = (await sumSnapshots(sql, orgId)).bytes;
  return { limitGib, used, left: limitGib * GIB - used };
}
