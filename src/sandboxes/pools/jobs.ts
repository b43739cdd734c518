import type { WorkerContext } from '../../context.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import { followTags } from './follow-tag.js';
import { OpenGuests } from './open-guests.js';
import { refillPools } from './refill.js';

const REFILL_EVERY_MS = 1_000;
const FOLLOW_EVERY_MS = 30_000;

/** Keeps the pools filled. A change of a sandbox wakes the loop where there are pools: a create may have taken one. */
export function startPools(ctx: WorkerContext, onError: (loop: string) => (error: unknown) => void): Loop {
  const guests = new OpenGuests();
  let exist = false;
  const refilling = startLoop(
    async (signal) => {
      exist = await refillPools(ctx, signal);
      if ((exist || guests.size > 0) && ctx.runtime.engine?.state !== 'connecting') await guests.pass(ctx);
    },
    { intervalMs: REFILL_EVERY_MS, halfTime: true, onError: onError('refill pools') },
  );
  const following = startLoop((signal) => followTags(ctx, signal), {
    intervalMs: FOLLOW_EVERY_MS,
    onError: onError('follow tags'),
  });
  const unsubscribe = ctx.changes.subscribe(undefined, () => {
    if (exist) refilling.wake();
  });
  return {
    wake: () => refilling.wake(),
    async stop() {
      unsubscribe();
      await Promise.all([refilling.stop(), following.stop()]);
      guests.close();
    },
  };
}
