import type { WorkerContext } from '../context.js';
import { startLoop, type Loop } from '../lib/loop.js';
import type { Term } from '../workers/lease.js';
import { CaptureQueue } from './capture-queue.js';
import { purgeDueSnapshots, tendSnapshots } from './upkeep.js';

const PASS_EVERY_MS = 1_000;
const TEND_EVERY_MS = 10_000;

/** Makes and removes snapshots while this process has the lease on the engine. A request wakes the loop. */
export function startSnapshots(
  ctx: WorkerContext,
  term: () => Term | undefined,
  onError: (error: unknown) => void,
): Pick<Loop, 'stop'> {
  let tendAt = 0;
  const queue = new CaptureQueue(ctx, () => {
    // A failed capture may have left something.
    tendAt = 0;
    loop.wake();
  });
  const loop: Loop = startLoop(
    async () => {
      const held = term();
      if (!held?.valid || ctx.runtime.engine?.state === 'connecting') return;
      const { snapshots } = ctx.runtime;
      if (!snapshots) return;
      if ((await purgeDueSnapshots(ctx, held)) > 0) tendAt = 0;
      await queue.pass(held);
      if (performance.now() < tendAt) return;
      tendAt = performance.now() + TEND_EVERY_MS;
      await tendSnapshots(ctx, held, snapshots);
    },
    { intervalMs: PASS_EVERY_MS, halfTime: true, onError },
  );
  const unsubscribe = ctx.changes.subscribe(undefined, () => loop.wake(), 'snapshot');
  return {
    async stop() {
      unsubscribe();
      await loop.stop();
      await queue.close();
    },
  };
}
