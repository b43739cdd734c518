import type { Context } from '../../context.js';
import { VolumePathError } from '../storage/guest-path.js';
import { canonical, look, present } from './entry.js';
import { refusing } from './errors.js';
import type { VolumeFile } from './schema.js';
import { readable, type Target } from './volume.js';

export async function stat(ctx: Context, target: Target, path: string): Promise<{ metadata: VolumeFile }> {
  await readable(ctx, target);
  return refusing(async () => {
    const { handle, stats } = await look(ctx, target, path);
    await handle.close();
    return { metadata: present(canonical(path), stats) };
  });
}

/** Would `stat` find it? */
export async function exists(ctx: Context, target: Target, path: string): Promise<{ exists: boolean }> {
  await readable(ctx, target);
  return refusing(async () => {
    try {
      const { handle } = await look(ctx, target, path);
      await handle.close();
      return { exists: true };
    } catch (error) {
      const missing = ['not_found', 'not_a_directory', 'symlink'];
      if (error instanceof VolumePathError && missing.includes(error.kind)) return { exists: false };
      throw error;
    }
  });
}
