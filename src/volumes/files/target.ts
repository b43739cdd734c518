import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { refuseFilesInEngine } from '../engine-storage.js';
import { getVolume, type VolumeRow } from '../queries.js';
import { translateErrors } from './translate-errors.js';

export interface VolumeTarget {
  orgId: string;
  volumeId: string;
}

export async function findVolume(ctx: Context, { orgId, volumeId }: VolumeTarget): Promise<VolumeRow> {
  const volume = await getVolume(ctx.pool, orgId, volumeId);
  if (!volume) throw new ApiError('volume_not_found');
  refuseFilesInEngine(ctx);
  return volume;
}

/** A restore must bring a deleted volume back unchanged. */
export async function findWritableVolume(ctx: Context, target: VolumeTarget): Promise<VolumeRow> {
  const volume = await findVolume(ctx, target);
  if (volume.status === 'deleting') throw new ApiError('volume_deleting');
  await translateErrors(async () =>
    ctx.volumes.holdToCap(target.orgId, target.volumeId, volume.capacity_gib),
  );
  return volume;
}
