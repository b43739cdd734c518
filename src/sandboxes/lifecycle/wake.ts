import { FULL_ACCESS } from '../../access/access.js';
import { PREVIEW_WAKE } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { WriteBatch } from '../../db/write-batch.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { instantFromMicros, microsOf, type Instant } from '../../lib/instant.js';
import { extendWanted, recentRuns, type RunTimes } from '../../runs/queries.js';
import { admittedMillis } from '../../runs/run-id.js';
import type { StopReason } from '../../spec/statuses.js';
import { lockSandbox, type LockedSandbox } from '../queries.js';
import { queueRun } from './restart.js';
import type { RunCause } from './next-run.js';
import { isPausedByIdleness } from './resume.js';
import { runUnderWay } from './run-under-way.js';
import { admitStart } from './start.js';
import { stopCause } from './stop-reason.js';

export interface WakeRequest {
  orgId: string;
  sandboxId: string;
  previewId: string;
  /** Nobody asked for the page: a page that is open already sent the request. */
  isBackground: boolean;
  /** The run ends then if it still has no place. */
  wantedUntil: Instant;
}

export type WakeStatus = 'running' | 'starting';

/** Why a request does not start a sandbox. */
export type WakeRefusal = 'not_allowed' | 'stopped_by_caller' | 'secret_violation' | 'starts_fail';

export class WakeRefusedError extends Error {
  constructor(
    readonly refusal: WakeRefusal,
    /** A request after this time may start it. Undefined: none does, until something else changes. */
    readonly retryAfterMs?: number,
  ) {
    super(refusal);
  }
}

/** A run that ends unasked within this time counts as a failed start. */
const SHORT_RUN_MS = 60_000;
const FIRST_DELAY_MS = 2_000;
const LONGEST_DELAY_MS = 5 * 60_000;
/** The latest runs that count. After so many failed starts the delay is the longest. */
const COUNTED_RUNS = 10;
/** These stops are wishes that a page that is still open must not undo. */
const WISHED = new Set<StopReason>(['requested', 'paused', 'max_duration', 'disk_full']);
/** These ends are no fault of the sandbox, or come after a wait that was long enough. */
const BLAMELESS = new Set(['no_room_in_time', 'worker_removed', 'lost', 'cancelled']);

/**
 * Starts a sandbox for a request to its preview, or joins a start in flight; several processes start it once. Returns
 * its status. Throws WakeRefusedError, or the ApiError of a start.
 */
export async function wakeSandbox(ctx: Context, request: WakeRequest): Promise<WakeStatus> {
  const { orgId, sandboxId, isBackground, wantedUntil, previewId } = request;
  const caller = { orgId, actor: PREVIEW_WAKE, access: FULL_ACCESS };
  const cause: RunCause = { reason: 'preview_request', preview_id: previewId };
  return inTransaction(ctx.pool, async (tx) => {
    const batch = new WriteBatch(tx);
    const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const { status, run_spec: runSpec } = sandbox;
    if (status === 'running') return 'running';
    if (status === 'starting') {
      await extendWanted(tx, orgId, sandboxId, wantedUntil);
      return 'starting';
    }
    if (status === 'stopping' && sandbox.next_run !== null) return 'starting';
    const isAllowed = runSpec?.wakeOnRequest === true || (await isPausedByIdleness(tx, sandbox));
    if (!isAllowed) throw new WakeRefusedError('not_allowed');
    refuseAfter(
      status === 'stopping' ? await requestedReason(tx, sandbox) : sandbox.stop_reason,
      isBackground,
    );
    if (status === 'stopping') {
      await queueRun(ctx, tx, batch, caller, sandbox, { cause });
      await batch.send();
      return 'starting';
    }
    if (mayHaveFailed(sandbox)) {
      const delay = delayOf(await recentRuns(tx, orgId, sandboxId, COUNTED_RUNS), ctx.now());
      if (delay > 0) throw new WakeRefusedError('starts_fail', delay);
    }
    await admitStart(ctx, tx, batch, { caller, sandbox, wantedUntil, cause });
    await batch.send();
    return 'starting';
  });
}

/** The reason of the stop that is under way. */
async function requestedReason(tx: Sql, sandbox: LockedSandbox): Promise<StopReason | null> {
  const run = await runUnderWay(tx, sandbox);
  return run?.stop_reason == null ? null : stopCause(run, run.stop_reason, null).stop_reason;
}

function refuseAfter(reason: StopReason | null, isBackground: boolean): void {
  if (reason === 'secret_violation') throw new WakeRefusedError('secret_violation');
  if (isBackground && reason !== null && WISHED.has(reason)) throw new WakeRefusedError('stopped_by_caller');
}

/** The usual end, of an idle sandbox, needs no further query. */
function mayHaveFailed({ status, stop_reason: reason }: LockedSandbox): boolean {
  return status === 'failed' || reason === 'engine' || reason === 'command';
}

/**
 * How long until a request may start the sandbox, in milliseconds. It doubles with each failed start in a row. The
 * rows of runs are its memory, so restarts and other processes do not shorten it.
 *
 * @param runs From the latest.
 */
export function delayOf(runs: readonly RunTimes[], now: Instant): number {
  const firstGood = runs.findIndex((run) => !isFailedStart(run));
  const failed = firstGood === -1 ? runs.length : firstGood;
  if (failed === 0) return 0;
  const delay = Math.min(FIRST_DELAY_MS * 2 ** (failed - 1), LONGEST_DELAY_MS);
  return Math.max(0, delay - millisBetween(endOf(runs[0]!), now));
}

function isFailedStart(run: RunTimes): boolean {
  if (run.end_reason === null || run.stop_reason !== null || BLAMELESS.has(run.end_reason)) return false;
  if (run.started_at === null || run.stopped_at === null) return true;
  return millisBetween(run.started_at, run.stopped_at) < SHORT_RUN_MS;
}

/** A start that the engine refused has no times. It began when its run was admitted. */
function endOf({ id, stopped_at: stoppedAt }: RunTimes): Instant {
  return stoppedAt ?? instantFromMicros(BigInt(admittedMillis(id)) * 1_000n);
}

function millisBetween(from: Instant, to: Instant): number {
  return Number((microsOf(to) - microsOf(from)) / 1_000n);
}
