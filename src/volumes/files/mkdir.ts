import type { Context } from '../../context.js';
import { refusing } from './errors.js';
import { writable, type Target } from './volume.js';

/** Makes a directory and those it is in. One that exists is no error. */
export async function makeDirectory(
  ctx: Context,
  target: Target,
  path: string,
): Promise<{ message: string }> {
  await writable(ctx, target);
  return refusing(async () => {
    await ctx.volumes.makeDirectory(target.orgId, target.volumeId, path);
    return { message: 'the directory is there' };
  });
}
