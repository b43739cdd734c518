import type { Context } from './context.js';
import { forgetKeys } from './idempotency/jobs.js';
import { startLoop, type Loop } from './lib/loop.js';
import { enforcePools } from './quotas/jobs.js';
import { removeLingering } from './sandboxes/linger.js';
import { Reconciler } from './sandboxes/reconcile.js';
import { purgeDueVolumes, removeLeftData } from './volumes/jobs.js';
import { sampleVolumes } from './volumes/sample.js';
import { WorkerLease, type Term } from './workers/lease.js';
import { placeWaiting } from './workers/place.js';

/** Renewals in the time that a lease lasts: one or two may fail. */
const RENEWALS_PER_LEASE = 5;
const RECONCILE_EVERY_MS = 1_000;
const SWEEP_EVERY_MS = 1_000;
const LEFT_DATA_EVERY_MS = 3_600_000;
/** For volumes whose next reading is due: a reading is late by at most this part of the interval. */
const LOOKS_PER_SAMPLE = 20;
const LONGEST_BETWEEN_LOOKS_MS = 60_000;

/** Every loop of the worker role. */
export function startWorker(ctx: Context): { stop(): Promise<void> } {
  const logError = (loop: string) => (error: unknown) => ctx.log.error({ err: error, loop }, 'a loop failed');
  const watching = new AbortController();

  const lease = new WorkerLease(ctx);
  const reconciler = new Reconciler(ctx, () => reconcile.wake());
  let takenOver: Term | undefined;
  const reconcile: Loop = startLoop(
    async () => {
      const { term } = lease;
      if (!term?.valid) return;
      if (takenOver !== term) await ctx.runtime.takeOver();
      takenOver = term;
      await placeWaiting(ctx, term);
      await reconciler.pass(term);
    },
    { intervalMs: RECONCILE_EVERY_MS, maxBackoffMs: 10_000, onError: logError('reconcile') },
  );
  let standingBy = false;
  const renewEveryMs = ctx.settings.workerLeaseMs / RENEWALS_PER_LEASE;
  const renew = startLoop(
    async () => {
      const held = await lease.renew();
      if (held && takenOver !== lease.term) reconcile.wake();
      if (!held && !standingBy) ctx.log.info('another process acts on this engine: standing by');
      standingBy = !held;
    },
    { intervalMs: renewEveryMs, maxBackoffMs: renewEveryMs, onError: logError('lease') },
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
      await enforcePools(ctx, signal);
      await forgetKeys(ctx, signal);
    },
    { intervalMs: SWEEP_EVERY_MS, onError: logError('sweep') },
  );

  const leftData = startLoop((signal) => removeLeftData(ctx, signal), {
    intervalMs: LEFT_DATA_EVERY_MS,
    onError: logError('left data'),
  });

  const { volumeSampleMs } = ctx.settings;
  const samples = startLoop((signal) => sampleVolumes(ctx, signal), {
    intervalMs: Math.min(volumeSampleMs / LOOKS_PER_SAMPLE, LONGEST_BETWEEN_LOOKS_MS),
    onError: logError('volume sizes'),
  });

  return {
    async stop() {
      watching.abort();
      unsubscribe();
      await Promise.all([reconcile.stop(), sweep.stop(), leftData.stop(), samples.stop(), watched]);
      await reconciler.close();
      await renew.stop();
      await lease.release();
    },
  };
}
