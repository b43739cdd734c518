import type { Context } from './context.js';
import { holdLease } from './db/lease.js';
import type { Address } from './db/pool.js';
import { startLoop, type Loop } from './lib/loop.js';
import { removeLingering } from './sandboxes/linger.js';
import { Reconciler } from './sandboxes/reconcile.js';
import { purgeDueVolumes, removeLeftData } from './volumes/jobs.js';

const RECONCILE_EVERY_MS = 1_000;
const SWEEP_EVERY_MS = 1_000;
const LEFT_DATA_EVERY_MS = 3_600_000;

/** Every loop of the worker role. */
export function startWorker(ctx: Context, address: Address): { stop(): Promise<void> } {
  const logError = (loop: string) => (error: unknown) => ctx.log.error({ err: error, loop }, 'a loop failed');
  const watching = new AbortController();

  let reconcile: Loop | undefined;
  const reconciler = new Reconciler(ctx, () => reconcile?.wake());
  // Two reconcilers on one runtime would start everything twice: the second waits until the first is gone.
  const lease = holdLease(address, `reconcile ${ctx.runtime.name}`);
  reconcile = startLoop(
    async () => {
      if (await lease.held()) await reconciler.pass();
    },
    { intervalMs: RECONCILE_EVERY_MS, maxBackoffMs: 10_000, onError: logError('reconcile') },
  );
  const wake = () => reconcile.wake();
  const unsubscribe = ctx.changes.subscribe(undefined, wake);
  const watched = (async () => {
    for await (const _ of ctx.runtime.watch(watching.signal)) wake();
  })().catch(logError('watch'));

  const sweep = startLoop(
    async (signal) => {
      await removeLingering(ctx, signal);
      await purgeDueVolumes(ctx, signal);
    },
    { intervalMs: SWEEP_EVERY_MS, onError: logError('sweep') },
  );

  const leftData = startLoop((signal) => removeLeftData(ctx, signal), {
    intervalMs: LEFT_DATA_EVERY_MS,
    onError: logError('left data'),
  });

  return {
    async stop() {
      watching.abort();
      unsubscribe();
      await Promise.all([reconcile.stop(), sweep.stop(), leftData.stop(), watched]);
      await reconciler.close();
      await lease.release();
    },
  };
}
