import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import { announceChange } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { replaceStopReason } from '../../runs/queries.js';
import { isBeingPaused } from '../lifecycle/pause.js';
import { isPaused, recordDiscarded } from '../lifecycle/paused.js';
import { lockSandbox, updateSandboxRow } from '../queries.js';
import type { SandboxRef } from './queries.js';

const LOST =
  'the memory of its pause is no longer on the disk of its engine: a start begins anew from its disk';

/** The engine let the sandbox run on. A stop that was requested meanwhile goes on. */
export async function recordPauseFailed(
  tx: EventSql,
  { orgId, sandboxId, runId, message }: SandboxRef & { runId: string; message: string },
  at: Instant,
): Promise<void> {
  const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
  if (!sandbox || sandbox.run_id !== runId || !(await isBeingPaused(tx, sandbox))) return;
  await replaceStopReason(tx, orgId, runId, null);
  const { name, status } = sandbox;
  const payload = {
    sandbox_id: sandboxId,
    name,
    run_id: runId,
    previous_status: status,
    status: 'running' as const,
  };
  await recordEvent(tx, {
    orgId,
    type: 'sandbox_pause_failed',
    actor: RECONCILER,
    resourceId: sandboxId,
    at,
    payload: { ...payload, reason: 'engine', message },
  });
  const change = {
    status: 'running',
    last_failure_message: `it was not paused: ${message}`,
    next_run: null,
  } as const;
  await updateSandboxRow(tx, orgId, sandboxId, change, at);
  await announceChange(tx, sandboxId);
}

/** Paused sandboxes whose memory the engine does not have any more. */
export async function recordMemoryLost(
  tx: EventSql,
  sandboxes: readonly SandboxRef[],
  at: Instant,
): Promise<void> {
  for (const { orgId, sandboxId } of sandboxes) {
    const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
    if (!sandbox || !isPaused(sandbox)) continue;
    await recordDiscarded(tx, sandbox, { actor: RECONCILER, reason: 'lost', at, after: 'failed' });
    const change = {
      status: 'failed',
      paused_at: null,
      stop_reason: 'lost',
      stop_message: LOST,
      last_failure_message: LOST,
    } as const;
    await updateSandboxRow(tx, orgId, sandboxId, change, at);
    await announceChange(tx, sandboxId);
  }
}
