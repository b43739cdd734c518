import { createPartitionsAhead } from './audit/events/partitions.js';
import { startSealing } from './audit/log/seal-loop.js';
import { enforceWithClockCheck } from './audit/retention/enforce.js';
import type { WorkerContext } from './context.js';
import { forgetKeys } from './idempotency/jobs.js';
import { endKeys } from './keys/jobs.js';
import { startLoop, type Loop } from './lib/loop.js';
import { placeWaiting } from './sandboxes/placement/place.js';
import { makeWaitLog, noteLongWaits } from './sandboxes/placement/wait-notices.js';
import { Reconciler } from './sandboxes/reconcile/reconcile.js';
import { removeLingering } from './sandboxes/remove-ephemeral.js';
import { enforcePools, foldAllCounts } from './sandboxes/stop-over-quota.js';
import { purgeDueVolumes, removeLeftData } from './volumes/jobs.js';
import { sampleVolumes } from './volumes/sample.js';
import { startWebhooks, sweepDeliveries } from './webhooks/jobs.js';
import { WorkerLease, type Term } from './workers/lease.js';

/** Renewals in the time that a lease lasts: one or two may fail. */
const RENEWALS_PER_LEASE = 5;
const RECONCILE_EVERY_MS = 1_000;
const SWEEP_EVERY_MS = 1_000;
/** Who creates adds up what is not folded yet. */
const FOLD_COUNTS_EVERY_MS = 500;
/** For starts that wait for a place: an audit event is late by at most this. */
const LOOK_FOR_WAITS_EVERY_MS = 2_000;
const FORGET_KEYS_EVERY_MS = 60_000;
const SWEEP_DELIVERIES_EVERY_MS = 60_000;
const LEFT_DATA_EVERY_MS = 3_600_000;
const EVENT_MONTHS_EVERY_MS = 3_600_000;
/** For volumes whose next reading is due: a reading is late by at most this part of the interval. */
const LOOKS_PER_SAMPLE = 20;
const LONGEST_BETWEEN_LOOKS_MS = 60_000;

/** Every loop of the worker role. */
export function startWorker(ctx: WorkerContext): { stop(): Promise<void> } {
  const logError = (loop: string) => (error: unknown) => ctx.log.error({ err: error, loop }, 'a loop failed');
  const watching = new AbortController();

  const lease = new WorkerLease(ctx);
  const reconciler = new Reconciler(ctx, () => reconcile.wake());
  let takenOver: Term | undefined;
  const reconcile: Loop = startLoop(
    async () => {
      const { term } = lease;
      if (!term?.valid) return;
      if (takenOver !== term) await ctx.runtime.takeOver(term);
      takenOver = term;
      await placeWaiting(ctx, term);
      await reconciler.pass(term);
    },
    { intervalMs: RECONCILE_EVERY_MS, maxBackoffMs: 10_000, rests: true, onError: logError('reconcile') },
  );
  let standingBy = false;
  const renewEveryMs = ctx.settings.workerLeaseMs / RENEWALS_PER_LEASE;
  const renew = startLoop(
    async () => {
      // Until the engine has answered once it is not known which worker this is.
      if (ctx.runtime.engine?.state === 'connecting') return;
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

  // A loop each: one that fails, or has much to do, holds none of the others up.
  const job = (work: (ctx: WorkerContext, signal: AbortSignal) => Promise<void>, intervalMs: number) =>
    startLoop((signal) => work(ctx, signal), { intervalMs, onError: logError(work.name) });
  const jobs = [
    job(removeLingering, SWEEP_EVERY_MS),
    job(enforcePools, SWEEP_EVERY_MS),
    job(foldAllCounts, FOLD_COUNTS_EVERY_MS),
    job(noteLongWaits, LOOK_FOR_WAITS_EVERY_MS),
    job(makeWaitLog(), LOOK_FOR_WAITS_EVERY_MS),
    job(purgeDueVolumes, SWEEP_EVERY_MS),
    job(forgetKeys, FORGET_KEYS_EVERY_MS),
    job(endKeys, SWEEP_EVERY_MS),
    job(sweepDeliveries, SWEEP_DELIVERIES_EVERY_MS),
    job(createPartitionsAhead, EVENT_MONTHS_EVERY_MS),
    job(enforceWithClockCheck, EVENT_MONTHS_EVERY_MS),
    job(removeLeftData, LEFT_DATA_EVERY_MS),
    job(sampleVolumes, Math.min(ctx.settings.volumeSampleMs / LOOKS_PER_SAMPLE, LONGEST_BETWEEN_LOOKS_MS)),
  ];

  const webhooks = startWebhooks(ctx);

  const sealing = startSealing(ctx, logError('seal'));

  return {
    async stop() {
      watching.abort();
      unsubscribe();
      await Promise.all([reconcile.stop(), ...jobs.map((loop) => loop.stop()), webhooks.stop(), watched]);
      await reconciler.close();
      await sealing.stop();
      await renew.stop();
      await lease.release();
    },
  };
}
