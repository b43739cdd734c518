import { lstat, rmdir, unlink } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { fdPath } from '../storage/guest-path.js';
import { removeTree } from '../storage/remove-tree.js';
import { stepsOf } from './steps.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

export async function remove(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  { recursive, abandoned }: { recursive: boolean; abandoned: AbortSignal },
): Promise<{ message: string }> {
  await findWritableVolume(ctx, target);
  const step = stepsOf(ctx, target, abandoned, () => findWritableVolume(ctx, target));
  return translateErrors(async () => {
    const { parent, name } = await ctx.volumes.openParent(target.orgId, target.volumeId, path);
    try {
      if (name === undefined)
        throw new ApiError('invalid_volume_path', 'the top of the volume cannot be removed');
      const found = await lstat(fdPath(parent, name));
      if (recursive && !found.isDirectory()) {
        throw new ApiError(
          'invalid_volume_path',
          'the path does not lead to a directory: leave x-msb-file-recursive out to remove a file',
        );
      }
      if (!found.isDirectory()) await step(() => unlink(fdPath(parent, name)));
      else if (recursive) await removeTree(parent, name, step);
      else await rmdir(fdPath(parent, name));
      return { message: found.isDirectory() ? 'the directory is removed' : 'the file is removed' };
    } finally {
      await parent.close();
    }
  });
}
