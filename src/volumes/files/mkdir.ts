import type { Context } from '../../context.js';
import { findWritableVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

export async function makeDirectory(
  ctx: Context,
  target: VolumeTarget,
  path: string,
): Promise<{ message: string }> {
  await findWritableVolume(ctx, target);
  ctx.disk.check('volumes');
  return translateErrors(async () => {
    await ctx.volumes.makeDirectory(target.orgId, target.volumeId, path);
    return { message: 'the directory is there' };
  });
}
