import type { Context } from '../../context.js';
import type { Step } from '../storage/growth.js';
import type { VolumeTarget } from './target.js';

const CHECK_EVERY_MS = 1_000;

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
    return ctx.volumes.pieces.run(orgId, piece);
  };
}
