import type { Context } from '../context.js';
import { announceChange } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { RECONCILER } from '../events/actor.js';
import { recordEvent } from '../events/record.js';
import type { Instant } from '../lib/instant.js';
import { shortInstant } from '../lib/instant.js';
import { closeRun, lastSeen, openRun } from '../runs/queries.js';
import type { Exit } from '../runtimes/runtime.js';
import { lockSandbox, updateSandbox, type LockedSandbox, type SandboxChange } from './queries.js';
import { TRANSITIONS, type Occurrence } from './state.js';

/** What the runtime's record says of one run. */
export interface Observation {
  orgId: string;
  sandboxId: string;
  runId: string;
  occurrence: Occurrence;
  /** From the runtime's record; null when the run never started. */
  startedAt: Instant | null;
  stoppedAt: Instant | null;
  /** Why it ended: a word for machines. */
  reason: string | null;
  /** Why it failed: a sentence for people. */
  message: string | null;
  exit: Exit | null;
}

/**
 * Writes down what the runtime recorded of a run: run, status and audit event in one transaction. An observation that
 * was written before, or that is of an older run, changes nothing.
 */
export async function recordObservation(ctx: Context, observation: Observation): Promise<void> {
  const { orgId, sandboxId, runId } = observation;
  await inTransaction(ctx.pool, async (tx) => {
    const sandbox = await lockSandbox(tx, orgId, { id: sandboxId }, { removed: true });
    if (sandbox?.run_id !== runId) return;
    if (observation.startedAt !== null) await openRun(tx, orgId, runId, observation.startedAt);
    if (observation.occurrence === 'run_started') await recordStart(ctx, tx, sandbox, observation);
    else await recordEnd(ctx, tx, sandbox, observation);
  });
}

async function recordStart(
  ctx: Context,
  tx: Sql,
  sandbox: LockedSandbox,
  { orgId, sandboxId, runId, startedAt }: Observation,
): Promise<void> {
  if (sandbox.removed_at) return;
  const outcome = TRANSITIONS[sandbox.status].run_started;
  if (outcome !== 'running') return;
  const at = ctx.now();
  await recordEvent(tx, {
    orgId,
    type: 'sandbox_started',
    actor: RECONCILER,
    resourceId: sandboxId,
    at,
    payload: {
      sandbox_id: sandboxId,
      name: sandbox.name,
      run_id: runId,
      previous_status: sandbox.status,
      status: outcome,
      started_at: startedAt && shortInstant(startedAt),
    },
  });
  const change = { status: outcome, status_reason: null, started_at: startedAt, stopped_at: null } as const;
  await updateSandbox(tx, orgId, sandboxId, change, at);
  await announceChange(tx, sandboxId);
}

async function recordEnd(
  ctx: Context,
  tx: Sql,
  sandbox: LockedSandbox,
  observation: Observation,
): Promise<void> {
  const { orgId, sandboxId, runId, occurrence, startedAt, message, exit } = observation;
  // A run whose record is lost ended, for all that is known, when it was last seen.
  const stoppedAt =
    observation.stoppedAt ?? (occurrence === 'run_lost' ? await lastSeen(tx, orgId, runId) : null);
  const reason = observation.reason ?? occurrence;
  if (!(await closeRun(tx, orgId, runId, { stoppedAt, reason }))) return;

  const at = ctx.now();
  const outcome = sandbox.removed_at ? 'gone' : TRANSITIONS[sandbox.status][occurrence];
  const failed = outcome === 'failed';
  // The status may have been read too early to show that the run had started: both times come from the record.
  const times: SandboxChange = stoppedAt === null ? {} : { stopped_at: stoppedAt };
  if (startedAt !== null) times.started_at = startedAt;
  await recordEvent(tx, {
    orgId,
    type: outcome === 'gone' ? 'sandbox_run_closed' : failed ? 'sandbox_failed' : 'sandbox_stopped',
    actor: RECONCILER,
    resourceId: sandboxId,
    at,
    payload: {
      sandbox_id: sandboxId,
      name: sandbox.name,
      run_id: runId,
      previous_status: sandbox.status,
      status: outcome === 'gone' ? null : outcome,
      reason,
      message,
      exit_code: exit?.code ?? null,
      started_at: (startedAt && shortInstant(startedAt)) ?? (stoppedAt && shortOrNull(sandbox.started_at)),
      stopped_at: shortOrNull(stoppedAt),
    },
  });
  if (outcome === 'stopped' || outcome === 'failed') {
    Object.assign(times, {
      status: outcome,
      status_reason: null,
      last_failure_message: failed ? message : null,
    });
  }
  await updateSandbox(tx, orgId, sandboxId, times, at);
  await announceChange(tx, sandboxId);
}

function shortOrNull(instant: Instant | null): Instant | null {
  return instant && shortInstant(instant);
}
