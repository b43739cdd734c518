import type { WorkerContext } from '../context.js';
import { startLoop, type Loop } from '../lib/loop.js';
import type { Term } from '../workers/lease.js';
import { failLostImports } from './archives/lost-imports.js';
import { CaptureQueue } from './capture-queue.js';
import { Collection } from './collect.js';
import { purgeDueSnapshots } from './purge.js';
import { tendSnapshots } from './upkeep.js';

const PASS_EVERY_MS = 1_000;
const TEND_EVERY_MS = 10_000;

/** Makes and removes snapshots while this process has the lease on the engine. A request wakes the loop. */
export function startSnapshots(
  ctx: WorkerContext,
  term: () => Term | undefined,
  onError: (error: unknown) => void,
): Pick<Loop, 'stop'> {
  let tendAt = 0;
  const collection = new Collection(ctx);
  const queue = new CaptureQueue(ctx, () => {
    // A failed capture may have left something.
    tendAt = 0;
    loop.wake();
  });
  const loop: Loop = startLoop(
    async () => {
      const held = term();
      const { engine } = ctx.runtime;
      // The attempts of a capture are few, and an engine can be away for longer.
      if (!held?.valid || (engine !== undefined && engine.state !== 'up')) return;
      if ((await purgeDueSnapshots(ctx, held)) > 0) tendAt = 0;
      // Also without snapshots of the engine: then each operation fails, and says so.
      await queue.pass(held);
      const { snapshots } = ctx.runtime;
      if (!snapshots || performance.now() < tendAt) return;
      tendAt = performance.now() + TEND_EVERY_MS;
      await failLostImports(ctx, held);
      if (!(await tendSnapshots(ctx, held, snapshots, collection))) return;
      tendAt = 0;
      loop.wake();
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
