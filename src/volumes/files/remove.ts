import { lstat, rmdir, unlink } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { at } from '../storage/guest-path.js';
import { removeTree } from '../storage/remove-tree.js';
import { refusing } from './errors.js';
import { writable, type Target } from './volume.js';

/** Removes a file, a link itself, an empty directory; `recursive`: a directory with everything in it, and nothing else. */
export async function remove(
  ctx: Context,
  target: Target,
  path: string,
  { recursive }: { recursive: boolean },
): Promise<{ message: string }> {
  await writable(ctx, target);
  return refusing(async () => {
    const { parent, name } = await ctx.volumes.openParent(target.orgId, target.volumeId, path);
    try {
      if (name === undefined)
        throw new ApiError('invalid_volume_path', 'the top of the volume cannot be removed');
      const found = await lstat(at(parent, name));
      if (recursive && !found.isDirectory()) {
        throw new ApiError(
          'invalid_volume_path',
          'the path does not lead to a directory: leave x-msb-file-recursive out to remove a file',
        );
      }
      if (!found.isDirectory()) await unlink(at(parent, name));
      else if (recursive) await removeTree(parent, name);
      else await rmdir(at(parent, name));
      return { message: found.isDirectory() ? 'the directory is removed' : 'the file is removed' };
    } finally {
      await parent.close();
    }
  });
}
