import type { Context } from '../../context.js';
import type { Step } from '../storage/growth.js';
import type { VolumeTarget } from './target.js';

const CHECK_EVERY_MS = 1_000;
/** The most that a piece is charged. It may also have waited for the disk. */
const MOST_MS = 2;

export function stepsOf(
  ctx: Context,
  { orgId }: VolumeTarget,
  abandoned: AbortSignal,
  check?: () => Promise<unknown>,
): Step {
  let checkedAt = performance.now();
  return async (piece) => {
    abandoned.throwIfAborted();
    if (check && performance.now() - checkedAt > CHECK_EVERY_MS) {
      await check();
      checkedAt = performance.now();
    }
    let millis = 0;
    const done = await ctx.volumes.pieces.run(orgId, async () => {
      const begun = performance.now();
      const result = await piece();
      millis = performance.now() - begun;
      return result;
    });
    await ctx.pace.rest(orgId, Math.min(millis, MOST_MS), abandoned);
    return done;
  };
}
