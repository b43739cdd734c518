import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { RECONCILER } from '../events/actor.js';
import { addMillis } from '../lib/instant.js';
import { touchRuns } from '../runs/queries.js';
import { StartRefusedError, type Holding } from '../runtimes/runtime.js';
import { decide } from './decide.js';
import { lockSandbox, updateSandbox } from './queries.js';
import { recordObservation, type Observation } from './record.js';
import { sandboxesToReconcile, type ReconcileRow } from './reconcile-queries.js';
import { requestStop } from './stop.js';

/** Calls to the runtime that may be under way at once. */
const CONCURRENCY = 32;
/** How exact the end of a run is known whose container vanished with its record, in milliseconds. */
const TOUCH_INTERVAL_MS = 10_000;

/**
 * Closes the difference between what the store says should be and what the runtime says is. Each pass looks at both
 * anew, so it makes no difference what a killed predecessor had begun.
 */
export class Reconciler {
  /** One call to the runtime a sandbox at a time; a start can be abandoned when it is no longer wanted. */
  private readonly busy = new Map<
    string,
    { step: string; controller: AbortController; done: Promise<void> }
  >();
  private lastTouch = 0;

  constructor(
    private readonly ctx: Context,
    /** Called when a call to the runtime has ended and another look is due. */
    private readonly again: () => void,
  ) {}

  async pass(): Promise<void> {
    const { ctx } = this;
    const holdings = new Map((await ctx.runtime.list()).map((holding) => [holding.sandboxId, holding]));
    const rows = await sandboxesToReconcile(ctx.pool, ctx.runtime.name, [...holdings.values()]);
    await this.touch(rows, holdings);
    for (const row of rows) {
      await this.reconcile(row, holdings.get(row.sandboxId));
      holdings.delete(row.sandboxId);
    }
    // What is left belongs to no sandbox of the store: a destroy that was killed after its last write, say.
    for (const orphan of holdings.values()) {
      if (this.busy.has(orphan.sandboxId)) continue;
      ctx.log.warn(
        { sandboxId: orphan.sandboxId, runId: orphan.runId },
        'destroying a sandbox the store does not know',
      );
      this.call(orphan.sandboxId, 'destroy', () => ctx.runtime.destroy(orphan.sandboxId));
    }
  }

  /** Waits for the calls under way; starts that only wait for an image are abandoned. */
  async close(): Promise<void> {
    for (const { controller } of this.busy.values()) controller.abort();
    await Promise.allSettled([...this.busy.values()].map(({ done }) => done));
  }

  private async reconcile(row: ReconcileRow, held: Holding | undefined): Promise<void> {
    const { ctx } = this;
    const { orgId, sandboxId, wanted } = row;
    const busy = this.busy.get(sandboxId);
    if (busy) {
      const unwanted = busy.step === 'start' && (wanted.status !== 'starting' || wanted.removed);
      if (unwanted) busy.controller.abort();
      return;
    }
    const step = decide(wanted, held);
    const runId = wanted.runId ?? '';
    switch (step) {
      case 'nothing':
        return this.expire(row);
      case 'start':
        return this.call(sandboxId, step, (signal) => this.start(row, runId, signal));
      case 'stop':
        return this.call(sandboxId, step, () => ctx.runtime.stop(sandboxId, ctx.settings.stopGraceMs));
      case 'kill':
        return this.call(sandboxId, step, () => ctx.runtime.stop(sandboxId, 0));
      case 'destroy':
        return this.call(sandboxId, step, () => ctx.runtime.destroy(sandboxId));
      case 'record_started':
        return this.record({
          ...observationOf(row, runId),
          occurrence: 'run_started',
          startedAt: held!.startedAt,
        });
      case 'record_exit':
        return this.record({ ...observationOf(row, runId), ...exitOf(held!, wanted.status === 'stopping') });
      case 'record_cancelled':
        return this.record({ ...observationOf(row, runId), occurrence: 'run_ended', reason: 'cancelled' });
      case 'record_lost':
        return this.record({
          ...observationOf(row, runId),
          occurrence: 'run_lost',
          reason: 'lost',
          message: `the ${ctx.runtime.name} runtime no longer holds the sandbox, and has no record of its end`,
        });
      case 'record_destroyed':
        return inTransaction(ctx.pool, async (tx) => {
          const at = ctx.now();
          await updateSandbox(tx, orgId, sandboxId, { destroyed_at: at }, at);
        });
    }
  }

  private async start(
    { orgId, sandboxId, spec }: ReconcileRow,
    runId: string,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      await this.ctx.runtime.start({ orgId, sandboxId, runId, spec }, signal);
    } catch (error) {
      if (!(error instanceof StartRefusedError)) throw error;
      await this.record({
        ...observationOf({ orgId, sandboxId }, runId),
        occurrence: 'start_failed',
        reason: 'start_failed',
        message: error.message,
      });
    }
  }

  private async record(observation: Observation): Promise<void> {
    await recordObservation(this.ctx, observation);
    this.again();
  }

  /** Ends a run that has used up its `max_duration_secs`. */
  private async expire({ orgId, sandboxId, spec, startedAt, wanted }: ReconcileRow): Promise<void> {
    const { ctx } = this;
    if (wanted.status !== 'running' || spec.maxDurationSecs === null || startedAt === null) return;
    if (ctx.now() < addMillis(startedAt, spec.maxDurationSecs * 1000)) return;
    await inTransaction(ctx.pool, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
      if (sandbox?.status !== 'running' || sandbox.run_id !== wanted.runId) return;
      await requestStop(tx, sandbox, RECONCILER, 'max_duration_exceeded', ctx.now());
    });
  }

  private async touch(rows: ReconcileRow[], holdings: ReadonlyMap<string, Holding>): Promise<void> {
    if (Date.now() - this.lastTouch < TOUCH_INTERVAL_MS) return;
    const running = rows.flatMap(({ orgId, sandboxId, wanted }) =>
      wanted.runStarted && wanted.runOpen && wanted.runId && holdings.get(sandboxId)?.state === 'running'
        ? [{ orgId, runId: wanted.runId }]
        : [],
    );
    if (running.length > 0) await touchRuns(this.ctx.pool, running, this.ctx.now());
    this.lastTouch = Date.now();
  }

  /** Begins a call to the runtime without waiting for it. A failed one is begun again by a later pass. */
  private call(sandboxId: string, step: string, work: (signal: AbortSignal) => Promise<void>): void {
    if (this.busy.size >= CONCURRENCY) return;
    const controller = new AbortController();
    const done = this.run(sandboxId, step, work(controller.signal));
    this.busy.set(sandboxId, { step, controller, done });
  }

  private async run(sandboxId: string, step: string, work: Promise<void>): Promise<void> {
    try {
      await work;
      this.again();
    } catch (error) {
      const fields = { err: error, sandboxId, step };
      this.ctx.log.error(fields, 'a call to the runtime failed; it will be tried again');
    } finally {
      this.busy.delete(sandboxId);
    }
  }
}

function observationOf(
  { orgId, sandboxId }: { orgId: string; sandboxId: string },
  runId: string,
): Observation {
  const nothing = { startedAt: null, stoppedAt: null, reason: null, message: null, exit: null };
  return { orgId, sandboxId, runId, occurrence: 'run_ended', ...nothing };
}

/** By the convention of shells and container runtimes. */
const EXIT_HINTS: Record<number, string> = {
  126: 'the command is not executable',
  127: 'there is no such command in the image',
  137: 'it was killed',
};

/** An exit that was asked for, or with code 0, is in order. */
function exitOf({ startedAt, finishedAt: stoppedAt, exit }: Holding, asked: boolean): Partial<Observation> {
  const times = { startedAt, stoppedAt, exit };
  if (asked) return { ...times, occurrence: 'run_ended', reason: 'stopped' };
  if (exit?.outOfMemory) {
    return {
      ...times,
      occurrence: 'run_crashed',
      reason: 'out_of_memory',
      message: 'the sandbox ran out of memory',
    };
  }
  if (exit?.code === 0) return { ...times, occurrence: 'run_ended', reason: 'completed' };
  const hint = exit && EXIT_HINTS[exit.code];
  const message = `the main process ended with code ${exit?.code ?? 'unknown'}${hint ? ` (${hint})` : ''}`;
  return { ...times, occurrence: 'run_crashed', reason: 'crashed', message };
}
