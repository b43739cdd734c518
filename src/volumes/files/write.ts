import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { lstat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { Context } from '../../context.js';
import { chunksOf } from '../../http/upload.js';
import { fdPath, VolumePathError } from '../storage/guest-path.js';
import { overCap, replaceFile } from './replace-file.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

const GIB = 1024 ** 3;

interface Upload {
  body: Readable | undefined;
  length: number | undefined;
  abandoned: AbortSignal;
  /** Gets the SHA-256 of the body before the volume changes. */
  onComplete: (digest: string) => Promise<void>;
}

export async function write(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  { body, length = 0, abandoned, onComplete }: Upload,
): Promise<{ message: string }> {
  const volume = await findWritableVolume(ctx, target);
  if (volume.capacity_gib !== null && length > volume.capacity_gib * GIB) throw overCap(volume);
  ctx.disk.check('volumes', length);
  return translateErrors(async () => {
    const previous = await findEarly(ctx, target, path);
    await replaceFile(ctx, { ...target, volume, path, abandoned, previous }, async (file, growth) => {
      const hash = createHash('sha256');
      let size = 0;
      try {
        const chunks = body ? chunksOf(body, (chunk) => void hash.update(chunk)) : [];
        for await (const chunk of chunks) {
          await growth.write(file, chunk, size);
          size += chunk.length;
        }
        await onComplete(hash.digest('hex'));
      } finally {
        // Drains a refused body; otherwise the connection would stall.
        body?.resume();
      }
    });
    return { message: 'the file is written' };
  });
}

/** Reports a bad path before the upload of the body. */
async function findEarly(
  ctx: Context,
  { orgId, volumeId }: VolumeTarget,
  path: string,
): Promise<Stats | undefined> {
  try {
    const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path);
    try {
      if (name === undefined) throw new VolumePathError('invalid', 'the top of the volume is a directory');
      return await lstat(fdPath(parent, name)).catch(() => undefined);
    } finally {
      await parent.close();
    }
  } catch (error) {
    if (!(error instanceof VolumePathError && error.kind === 'not_found')) throw error;
    return undefined;
  }
}
