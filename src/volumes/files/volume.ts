import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { getVolume, type VolumeRow } from '../queries.js';

/** Which volume's files a request works on. Looked up under the organization of the caller before anything else. */
export interface Target {
  orgId: string;
  volumeId: string;
}

export async function readable(ctx: Context, { orgId, volumeId }: Target): Promise<VolumeRow> {
  const volume = await getVolume(ctx.pool, orgId, volumeId);
  if (!volume) throw new ApiError('volume_not_found');
  return volume;
}

/** A volume that is being deleted can still be read, to save what is in it, but comes back as it was when restored. */
export async function writable(ctx: Context, target: Target): Promise<VolumeRow> {
  const volume = await readable(ctx, target);
  if (volume.status === 'deleting') throw new ApiError('volume_deleting');
  return volume;
}
