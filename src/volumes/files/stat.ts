import type { Context } from '../../context.js';
import { VolumePathError } from '../storage/guest-path.js';
import { canonical, openEntry, present } from './entry.js';
import type { VolumeFile } from './schema.js';
import { findVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

export async function stat(
  ctx: Context,
  target: VolumeTarget,
  path: string,
): Promise<{ metadata: VolumeFile }> {
  await findVolume(ctx, target);
  return translateErrors(async () => {
    const { handle, stats, link } = await openEntry(ctx, target, path);
    try {
      const shown = await present(canonical(path), stats, () => handle.stat({ bigint: true }));
      return { metadata: link === undefined ? shown : { ...shown, target: link } };
    } finally {
      await handle.close();
    }
  });
}

export async function exists(ctx: Context, target: VolumeTarget, path: string): Promise<{ exists: boolean }> {
  await findVolume(ctx, target);
  return translateErrors(async () => {
    try {
      const { handle } = await openEntry(ctx, target, path);
      await handle.close();
      return { exists: true };
    } catch (error) {
      const missing = ['not_found', 'not_a_directory', 'symlink'];
      if (error instanceof VolumePathError && missing.includes(error.kind)) return { exists: false };
      throw error;
    }
  });
}
