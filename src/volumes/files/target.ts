import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { getVolume, type VolumeRow } from '../queries.js';

/** Which volume's files a request works on. Looked up under the organization of the caller before anything else. */
export interface VolumeTarget {
  orgId: string;
  volumeId: string;
}

export async function findVolume(ctx: Context, { orgId, volumeId }: VolumeTarget): Promise<VolumeRow> {
  const volume = await getVolume(ctx.pool, orgId, volumeId);
  if (!volume) throw new ApiError('volume_not_found');
  return volume;
}

/** A volume that is being deleted can still be read, to save what is in it, but comes back as it was when restored. */
export async function findWritableVolume(ctx: Context, target: VolumeTarget): Promise<VolumeRow> {
  const volume = await findVolume(ctx, target);
  if (volume.status === 'deleting') throw new ApiError('volume_deleting');
  return volume;
}
