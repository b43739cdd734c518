import { ApiError } from '../http/errors.js';

export function overQuota(limitGib: number, used: number, bytes: number): ApiError {
  return new ApiError(
    'quota_exceeded',
    `max_snapshot_gib: the snapshot has ${bytes} bytes, and the snapshots of the organization have ${used} bytes of at most ${limitGib} GiB`,
  );
}
