import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { RECONCILER } from '../events/actor.js';
import { microsOf } from '../lib/instant.js';
import { touchRuns } from '../runs/queries.js';
import { StartRefusedError, type Holding } from '../runtimes/runtime.js';
import { decide } from './decide.js';
import { lockSandbox, updateSandbox } from './queries.js';
import { recordObservation, type Observation } from './record.js';
import { readRunSpec, sandboxesToReconcile, type ReconcileRow } from './reconcile-queries.js';
import { requestStop } from './stop.js';

/** Calls to the runtime that may be under way at once. Starts that wait for their images must not keep others from ending. */
const STARTS_AT_ONCE = 32;
const ENDINGS_AT_ONCE = 32;
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
    // What a call does while we look may or may not be in what we see: those sandboxes have to wait for the next look.
    const unsure = new Set(this.busy.keys());
    const holdings = new Map((await ctx.runtime.list()).map((holding) => [holding.sandboxId, holding]));
    const rows = await sandboxesToReconcile(ctx.pool, ctx.runtime.name, [...holdings.values()]);
    await this.touch(rows, holdings);
    for (const row of rows) {
      const held = holdings.get(row.sandboxId);
      holdings.delete(row.sandboxId);
      try {
        if (!this.isBusy(row) && !unsure.has(row.sandboxId)) await this.reconcile(row, held);
      } catch (error) {
        // One sandbox that cannot be dealt with must not keep all others from it.
        ctx.log.error({ err: error, sandboxId: row.sandboxId }, 'a sandbox could not be reconciled');
      }
    }
    // What is left belongs to no sandbox of the store: a destroy that was killed after its last write, say.
    for (const orphan of holdings.values()) {
      if (this.busy.has(orphan.sandboxId) || unsure.has(orphan.sandboxId)) continue;
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

  /** Is a call to the runtime under way? A start that is no longer wanted is abandoned. */
  private isBusy({ sandboxId, wanted }: ReconcileRow): boolean {
    const busy = this.busy.get(sandboxId);
    if (busy?.step === 'start' && (wanted.status !== 'starting' || wanted.removed)) busy.controller.abort();
    return busy !== undefined;
  }

  private async reconcile(row: ReconcileRow, held: Holding | undefined): Promise<void> {
    const { ctx } = this;
    const { orgId, sandboxId, wanted } = row;
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

  private async start({ orgId, sandboxId }: ReconcileRow, runId: string, signal: AbortSignal): Promise<void> {
    try {
      const spec = await readRunSpec(this.ctx.pool, orgId, sandboxId);
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
  private async expire({
    orgId,
    sandboxId,
    maxDurationSecs,
    startedAt,
    wanted,
  }: ReconcileRow): Promise<void> {
    const { ctx } = this;
    if (wanted.status !== 'running' || maxDurationSecs === null || startedAt === null) return;
    if (microsOf(ctx.now()) - microsOf(startedAt) < BigInt(maxDurationSecs) * 1_000_000n) return;
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
    const alike = [...this.busy.values()].filter((call) => (call.step === 'start') === (step === 'start'));
    if (alike.length >= (step === 'start' ? STARTS_AT_ONCE : ENDINGS_AT_ONCE)) return;
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
