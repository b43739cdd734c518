import { createPartitionsAhead } from './audit/events/partitions.js';
import { deleteOldTraces } from './audit/events/jobs.js';
import { startSealing } from './audit/log/seal-loop.js';
import { enforceWithClockCheck } from './audit/retention/enforce.js';
import { deleteExpiredSessions } from './console/jobs.js';
import type { WorkerContext } from './context.js';
import { deleteExpiredKeys } from './idempotency/jobs.js';
import { recordEndedKeys } from './keys/jobs.js';
import { deleteExpiredLinks } from './members/jobs.js';
import { deleteUsedLogoutTokens } from './people/jobs.js';
import { deleteExpiredChallenges } from './people/passkeys/jobs.js';
import { startLoop, type Loop } from './lib/loop.js';
import { compactAllCounts } from './quotas/jobs.js';
import { makeDiskGuard } from './sandboxes/full-disk/guard.js';
import { makeNetworkRecordJob } from './sandboxes/network/jobs.js';
import { giveUpUnwanted } from './sandboxes/placement/give-up.js';
import { makeSampling } from './sandboxes/metrics/jobs.js';
import { makePlacement } from './sandboxes/placement/place.js';
import { makeWaitLog, noteLongWaits } from './sandboxes/placement/wait-notices.js';
import { Reconciler } from './sandboxes/reconcile/reconcile.js';
import { startPools } from './sandboxes/pools/jobs.js';
import { removeLingering } from './sandboxes/lifecycle/remove-ephemeral.js';
import { makeLostSessionEnds } from './sandboxes/sessions/jobs.js';
import { enforceBudgets } from './sandboxes/lifecycle/stop-over-budget.js';
import { enforceHours } from './sandboxes/lifecycle/stop-over-quota.js';
import { deleteEndedPreviews } from './previews/grants/jobs.js';
import { deleteExpiredTickets } from './sandboxes/terminal/jobs.js';
import { startSnapshots } from './snapshots/jobs.js';
import { failOverdueSnapshots } from './snapshots/overdue.js';
import { startTemplates } from './templates/jobs.js';
import { failOverdueBuilds } from './templates/overdue.js';
import { purgeDueVolumes, removeLeftData } from './volumes/jobs.js';
import { sampleVolumes } from './volumes/sample.js';
import { startWebhooks, sweepDeliveries } from './webhooks/jobs.js';
import { WorkerLease, type Term } from './workers/lease.js';

/** A lease survives one or two failed renewals. */
const RENEWALS_PER_LEASE = 5;
const RECONCILE_EVERY_MS = 1_000;
const SWEEP_EVERY_MS = 1_000;
/** Creates add up the counts that are not compacted yet. */
const COMPACT_COUNTS_EVERY_MS = 500;
const DISK_GUARD_EVERY_MS = 1_000;
const SAMPLE_USE_EVERY_MS = 1_000;
const NOTE_WAITS_EVERY_MS = 2_000;
const WRITE_NETWORK_EVERY_MS = 1_000;
const FORGET_KEYS_EVERY_MS = 60_000;
const SWEEP_DELIVERIES_EVERY_MS = 60_000;
const LOST_SESSION_CHECKS = 6;
const LEFT_DATA_EVERY_MS = 3_600_000;
const EVENT_MONTHS_EVERY_MS = 3_600_000;
/** A due reading is late by at most this part of its interval. */
const CHECKS_PER_SAMPLE = 20;
const LONGEST_BETWEEN_CHECKS_MS = 60_000;

type OnError = (loop: string) => (error: unknown) => void;

/** Starts every background loop. */
export function startWorker(ctx: WorkerContext): { stop(): Promise<void> } {
  const onError: OnError = (loop) => (error) => {
    ctx.disk.noteFailure(error);
    ctx.meters.loopFailed(loop);
    ctx.log.error({ err: error, loop }, 'a loop failed');
  };
  const reconciling = startReconciling(ctx, onError);
  const jobs = startJobs(ctx, onError);
  const pools = startPools(ctx, onError);
  const snapshots = startSnapshots(ctx, () => reconciling.term, onError('snapshots'));
  const templates = startTemplates(ctx, () => reconciling.term, onError('templates'));
  const webhooks = startWebhooks(ctx);
  const sealing = startSealing(ctx, onError('seal'));
  const network = makeNetworkRecordJob();
  const recording = startLoop(() => network.pass(ctx), {
    intervalMs: WRITE_NETWORK_EVERY_MS,
    onError: onError('network record'),
  });
  return {
    async stop() {
      const loops = [recording, pools, snapshots, templates, ...jobs];
      await Promise.all([reconciling.stop(), webhooks.stop(), ...loops.map((loop) => loop.stop())]);
      await ctx.runtime.leave?.().catch(onError('leave'));
      await network.finish(ctx).catch(onError('network record'));
      await sealing.stop();
      await reconciling.release();
    },
  };
}

/** A job that fails, or takes long, delays no other: each has a loop of its own. */
function startJobs(ctx: WorkerContext, onError: OnError): Loop[] {
  const sampleEveryMs = Math.min(ctx.settings.volumeSampleMs / CHECKS_PER_SAMPLE, LONGEST_BETWEEN_CHECKS_MS);
  const job = (work: (ctx: WorkerContext, signal: AbortSignal) => Promise<void>, intervalMs: number) =>
    startLoop((signal) => work(ctx, signal), { intervalMs, onError: onError(work.name) });
  return [
    job(removeLingering, SWEEP_EVERY_MS),
    job(makeLostSessionEnds(), ctx.settings.sessionLostMs / LOST_SESSION_CHECKS),
    job(enforceHours, SWEEP_EVERY_MS),
    job(enforceBudgets, SWEEP_EVERY_MS),
    job(compactAllCounts, COMPACT_COUNTS_EVERY_MS),
    job(noteLongWaits, NOTE_WAITS_EVERY_MS),
    job(giveUpUnwanted, NOTE_WAITS_EVERY_MS),
    job(failOverdueSnapshots, NOTE_WAITS_EVERY_MS),
    job(failOverdueBuilds, NOTE_WAITS_EVERY_MS),
    job(makeWaitLog(), NOTE_WAITS_EVERY_MS),
    job(purgeDueVolumes, SWEEP_EVERY_MS),
    job(deleteExpiredKeys, FORGET_KEYS_EVERY_MS),
    job(deleteExpiredSessions, FORGET_KEYS_EVERY_MS),
    job(deleteExpiredLinks, FORGET_KEYS_EVERY_MS),
    job(deleteUsedLogoutTokens, FORGET_KEYS_EVERY_MS),
    job(deleteExpiredChallenges, FORGET_KEYS_EVERY_MS),
    job(deleteExpiredTickets, FORGET_KEYS_EVERY_MS),
    job(deleteEndedPreviews, FORGET_KEYS_EVERY_MS),
    job(deleteOldTraces, FORGET_KEYS_EVERY_MS),
    job(recordEndedKeys, SWEEP_EVERY_MS),
    job(sweepDeliveries, SWEEP_DELIVERIES_EVERY_MS),
    job(createPartitionsAhead, EVENT_MONTHS_EVERY_MS),
    job(enforceWithClockCheck, EVENT_MONTHS_EVERY_MS),
    job(removeLeftData, LEFT_DATA_EVERY_MS),
    job(sampleVolumes, sampleEveryMs),
  ];
}

interface Reconciling {
  /** Undefined until the runtime has dropped what it knew of the engine before this term. */
  readonly term: Term | undefined;
  /** Stops the reconciler. The lease is renewed until `release`, so that no other process acts meanwhile. */
  stop(): Promise<void>;
  release(): Promise<void>;
}

/** Reconciles while this process has the lease on the engine; a change in the store or in the engine wakes it. */
function startReconciling(ctx: WorkerContext, onError: OnError): Reconciling {
  const lease = new WorkerLease(ctx);
  ctx.engineLease.isHeld = () => lease.term?.valid ?? false;
  const reconciler = new Reconciler(ctx, () => reconcile.wake());
  const placeWaiting = makePlacement(ctx);
  let takenOver: Term | undefined;
  const reconcile: Loop = startLoop(
    async () => {
      const { term } = lease;
      if (!term?.valid) return;
      if (takenOver !== term) {
        await ctx.runtime.takeOver(term);
        reconciler.note(undefined);
      }
      takenOver = term;
      await placeWaiting(term);
      await reconciler.pass(term);
    },
    { intervalMs: RECONCILE_EVERY_MS, maxBackoffMs: 10_000, halfTime: true, onError: onError('reconcile') },
  );
  const wake = () => reconcile.wake();
  const note = (sandboxIds: readonly string[] | undefined) => {
    reconciler.note(sandboxIds);
    wake();
  };

  let standingBy = false;
  const renewEveryMs = ctx.settings.workerLeaseMs / RENEWALS_PER_LEASE;
  const renew = startLoop(
    async () => {
      // The first answer of the engine identifies the worker.
      if (ctx.runtime.engine?.state === 'connecting') return;
      const held = await lease.renew();
      if (held && takenOver !== lease.term) wake();
      if (!held && !standingBy) ctx.log.info('another process acts on this engine: standing by');
      standingBy = !held;
    },
    { intervalMs: renewEveryMs, maxBackoffMs: renewEveryMs, onError: onError('lease') },
  );

  const guard = makeDiskGuard();
  const guarding = startLoop(async () => (lease.term?.valid ? guard(ctx) : undefined), {
    intervalMs: DISK_GUARD_EVERY_MS,
    onError: onError('disk guard'),
  });

  const sample = makeSampling();
  const sampling = startLoop(async () => (lease.term?.valid ? sample(ctx) : ctx.use.stop()), {
    intervalMs: SAMPLE_USE_EVERY_MS,
    // Samples take at most half of the time.
    halfTime: true,
    onError: onError('sample use'),
  });

  const unsubscribe = ctx.changes.subscribe(undefined, (id) => note(id === undefined ? undefined : [id]));
  const watching = new AbortController();
  const watched = (async () => {
    for await (const ids of ctx.runtime.watch(watching.signal)) note(ids ?? undefined);
  })().catch(onError('watch'));

  return {
    get term() {
      return takenOver === lease.term ? takenOver : undefined;
    },
    async stop() {
      watching.abort();
      unsubscribe();
      await Promise.all([reconcile.stop(), guarding.stop(), sampling.stop(), watched]);
      await reconciler.close();
      ctx.use.stop();
    },
    async release() {
      await renew.stop();
      await lease.release();
    },
  };
}
