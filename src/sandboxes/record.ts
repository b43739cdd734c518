import type { Context } from '../context.js';
import { announceChange } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { RECONCILER } from '../events/actor.js';
import { recordEvent } from '../events/record.js';
import type { Instant } from '../lib/instant.js';
import { shortInstant } from '../lib/instant.js';
import { closeRun, lastSeen, openRun } from '../runs/queries.js';
import type { Exit } from '../runtimes/runtime.js';
import { deleteSecrets } from '../secrets/queries.js';
import { REGISTRY } from '../secrets/secrets.js';
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
 * Writes down what the runtime recorded of a run: run, status and audit event in the transaction `tx`. An observation that
 * was written before, or that is of an older run, changes nothing.
 */
export async function recordObservation(
  ctx: Pick<Context, 'now'>,
  tx: Sql,
  observation: Observation,
): Promise<void> {
  const { orgId, sandboxId, runId } = observation;
  const sandbox = await lockSandbox(tx, orgId, { id: sandboxId }, { removed: true });
  if (sandbox?.run_id !== runId) return;
  const opened = observation.startedAt !== null && (await openRun(tx, orgId, runId, observation.startedAt));
  // Also of a run whose end is seen at the same time: what has started is in the audit trail before it ends.
  const current = opened ? await recordStart(ctx, tx, sandbox, observation) : sandbox;
  if (observation.occurrence !== 'run_started') await recordEnd(ctx, tx, current, observation);
}

/** Returns the sandbox as it is then. */
async function recordStart(
  ctx: Pick<Context, 'now'>,
  tx: Sql,
  sandbox: LockedSandbox,
  { orgId, sandboxId, runId, startedAt }: Observation,
): Promise<LockedSandbox> {
  const outcome = sandbox.removed_at ? 'same' : TRANSITIONS[sandbox.status].run_started;
  const status = outcome === 'running' ? outcome : sandbox.status;
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
      status,
      reason: 'run_started',
      started_at: shortOrNull(startedAt),
    },
  });
  // The image is there: what it took to get it was for this once.
  await deleteSecrets(tx, orgId, sandboxId, REGISTRY);
  const change = { status, started_at: startedAt, stopped_at: null };
  const row = await updateSandbox(tx, orgId, sandboxId, { ...change, status_reason: null }, at);
  await announceChange(tx, sandboxId);
  return { ...sandbox, ...row };
}

async function recordEnd(
  ctx: Pick<Context, 'now'>,
  tx: Sql,
  sandbox: LockedSandbox,
  observation: Observation,
): Promise<void> {
  const { orgId, sandboxId, runId, occurrence, message, exit } = observation;
  const outcome = sandbox.removed_at ? 'gone' : TRANSITIONS[sandbox.status][occurrence];
  if (outcome === 'same') return;
  // Of a run whose record has no end it is known until when it was seen. One that never started has neither.
  const stoppedAt = observation.stoppedAt ?? (await lastSeen(tx, orgId, runId));
  const reason = observation.reason ?? occurrence;
  const closed = await closeRun(tx, orgId, runId, { stoppedAt, reason });
  if (!closed) return;

  const at = ctx.now();
  const ended = outcome === 'stopped' || outcome === 'failed' ? outcome : null;
  await recordEvent(tx, {
    orgId,
    type: ended === null ? 'sandbox_run_closed' : `sandbox_${ended}`,
    actor: RECONCILER,
    resourceId: sandboxId,
    at,
    payload: {
      sandbox_id: sandboxId,
      name: sandbox.name,
      run_id: runId,
      previous_status: sandbox.status,
      status: ended,
      reason,
      message,
      exit_code: exit?.code ?? null,
      started_at: shortOrNull(closed.started_at),
      stopped_at: shortOrNull(closed.stopped_at),
    },
  });
  const times: SandboxChange = closed.stopped_at === null ? {} : { stopped_at: closed.stopped_at };
  const status: SandboxChange =
    ended === null
      ? {}
      : { status: ended, status_reason: null, last_failure_message: ended === 'failed' ? message : null };
  await updateSandbox(tx, orgId, sandboxId, { ...times, ...status }, at);
  await announceChange(tx, sandboxId);
}

function shortOrNull(instant: Instant | null): Instant | null {
  return instant && shortInstant(instant);
}
