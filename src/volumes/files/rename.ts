import { lstat, rename as move } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { fdPath } from '../storage/guest-path.js';
import type { TransferRequest } from './schema.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

/** As rename(2). Creates missing parents. */
export async function rename(
  ctx: Context,
  target: VolumeTarget,
  { from, to }: TransferRequest,
): Promise<{ message: string }> {
  const { orgId, volumeId } = target;
  await findWritableVolume(ctx, target);
  return translateErrors(async () => {
    const source = await ctx.volumes.openParent(orgId, volumeId, from);
    try {
      if (source.name === undefined) throw topStays();
      // A missing source must not leave new directories.
      await lstat(fdPath(source.parent, source.name));
      const destination = await ctx.volumes.openParent(orgId, volumeId, to, { make: true });
      try {
        if (destination.name === undefined) throw topStays();
        await move(fdPath(source.parent, source.name), fdPath(destination.parent, destination.name));
      } finally {
        await destination.parent.close();
      }
    } finally {
      await source.parent.close();
    }
    return { message: 'renamed' };
  });
}

function topStays(): ApiError {
  return new ApiError('invalid_volume_path', 'the top of the volume can neither be renamed nor be replaced');
}
