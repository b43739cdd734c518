import type { WorkerContext } from '../context.js';
import { startLoop, type Loop } from '../lib/loop.js';
import type { Term } from '../workers/lease.js';
import { BuildQueue } from './build-queue.js';
import { collectTemplates } from './collect.js';

const PASS_EVERY_MS = 1_000;
const COLLECT_EVERY_MS = 10_000;

/** Builds templates while this process has the lease on the engine. A request wakes the loop. */
export function startTemplates(
  ctx: WorkerContext,
  term: () => Term | undefined,
  onError: (error: unknown) => void,
): Pick<Loop, 'stop'> {
  let collectAt = 0;
  const queue = new BuildQueue(ctx, () => {
    // A failed build has left something.
    collectAt = 0;
    loop.wake();
  });
  const loop: Loop = startLoop(
    async () => {
      const held = term();
      if (!held?.valid || ctx.runtime.engine?.state === 'connecting' || !ctx.runtime.snapshots) return;
      await queue.pass(held);
      if (performance.now() < collectAt) return;
      collectAt = performance.now() + COLLECT_EVERY_MS;
      await collectTemplates(ctx, held);
    },
    { intervalMs: PASS_EVERY_MS, halfTime: true, onError },
  );
  // Each part of a log is a change of its build, which asks nothing of the loop.
  const wake = (id: string | undefined) => {
    if (id === undefined || !queue.builds(id)) loop.wake();
  };
  const unsubscribe = ctx.changes.subscribe(undefined, (id) => wake(id), 'template');
  return {
    async stop() {
      unsubscribe();
      await loop.stop();
      await queue.close();
    },
  };
}
