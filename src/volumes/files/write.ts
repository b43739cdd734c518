import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { chunksOf } from '../../http/upload.js';
import { VolumePathError } from '../storage/guest-path.js';
import { replaceFile } from './replace-file.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

const GIB = 1024 ** 3;

/**
 * Creates missing parents. `onComplete` gets the SHA-256 of the body before the volume changes. The cap limits each
 * file: guests change the total at any time.
 */
export async function write(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  {
    body,
    length,
    onComplete,
  }: {
    body: Readable | undefined;
    length: number | undefined;
    onComplete: (digest: string) => Promise<void>;
  },
): Promise<{ message: string }> {
  const { capacity_gib } = await findWritableVolume(ctx, target);
  const maxBytes = capacity_gib === null ? Infinity : capacity_gib * GIB;
  if (length !== undefined && length > maxBytes) throw tooLarge(maxBytes);
  return translateErrors(async () => {
    await checkPathEarly(ctx, target, path);
    await replaceFile(ctx, target, path, async (file) => {
      const hash = createHash('sha256');
      let size = 0;
      if (!body) return onComplete(hash.digest('hex'));
      try {
        const chunks = chunksOf(body, (chunk) => {
          size += chunk.length;
          if (size > maxBytes) throw tooLarge(maxBytes);
          hash.update(chunk);
        });
        await writeFile(file, chunks);
        await onComplete(hash.digest('hex'));
      } finally {
        // Drains a refused body; otherwise the connection would stall.
        body.resume();
      }
    });
    return { message: 'the file is written' };
  });
}

/** Reports a bad path before the upload of the body. */
async function checkPathEarly(ctx: Context, { orgId, volumeId }: VolumeTarget, path: string): Promise<void> {
  try {
    const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path);
    await parent.close();
    if (name === undefined) throw new VolumePathError('invalid', 'the top of the volume is a directory');
  } catch (error) {
    if (!(error instanceof VolumePathError && error.kind === 'not_found')) throw error;
  }
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError('storage_full', 'the file exceeds the cap of the volume', { capacity_bytes: maxBytes });
}
