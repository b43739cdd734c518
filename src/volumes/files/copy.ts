import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { cloneContent, copyContent } from '../storage/copy-content.js';
import { allocatedBytes, openFile } from './entry.js';
import { replaceFile } from './replace-file.js';
import type { TransferRequest } from './schema.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

const GIB = 1024 ** 3;
/** Holes take time to read, too. A file system that shares extents copies any size. */
export const MAX_COPY_BYTES = 256 * GIB;

export async function copy(
  ctx: Context,
  target: VolumeTarget,
  { from, to }: TransferRequest,
  abandoned: AbortSignal,
): Promise<{ message: string }> {
  const volume = await findWritableVolume(ctx, target);
  return translateErrors(async () => {
    const { file: source, stats } = await openFile(ctx, target, from);
    try {
      // Between open files, so renames meanwhile do not matter.
      await replaceFile(
        ctx,
        { ...target, volume, path: to, abandoned, like: stats },
        async (file, growth) => {
          if (await growth.step(() => cloneContent(source, file))) {
            growth.take(allocatedBytes(await file.stat()));
            return;
          }
          if (stats.size > MAX_COPY_BYTES) throw tooLarge();
          await copyContent(source, file, stats.size, growth);
        },
      );
    } finally {
      await source.close();
    }
    return { message: 'the file is copied' };
  });
}

function tooLarge(): ApiError {
  return new ApiError(
    'invalid_volume_path',
    `a file of more than ${MAX_COPY_BYTES / GIB} GiB is not copied on this file system: copy it in a sandbox that mounts the volume`,
  );
}
