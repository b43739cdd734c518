import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import { announceChange } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { replaceStopReason } from '../../runs/queries.js';
import { isBeingPaused } from '../lifecycle/pause.js';
import { isPaused, recordDiscarded } from '../lifecycle/paused.js';
import { lockSandbox, updateSandboxRow } from '../queries.js';
import { commandWithoutMemory } from './command-state.js';
import type { SandboxRef } from './queries.js';

const LOST =
  'the memory of its pause is no longer on the disk of its engine: a start begins anew from its disk';

/** The engine let the sandbox run on. A stop or restart that was requested meanwhile continues. */
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

/**
 * Records the loss for each that is paused. `message`: default: the engine does not have the memory any more. Locks by
 * organization and id, as other transactions do.
 */
export async function recordMemoryLost(
  tx: EventSql,
  sandboxes: readonly SandboxRef[],
  at: Instant,
  message = LOST,
): Promise<void> {
  for (const { orgId, sandboxId } of sandboxes.toSorted(byOrgAndId)) {
    const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
    if (!sandbox || !isPaused(sandbox)) continue;
    await recordDiscarded(tx, sandbox, { actor: RECONCILER, reason: 'lost', at, after: 'failed' });
    const change = {
      status: 'failed',
      paused_at: null,
      stop_reason: 'lost',
      stop_message: message,
      last_failure_message: message,
      command: commandWithoutMemory(sandbox),
    } as const;
    await updateSandboxRow(tx, orgId, sandboxId, change, at);
    await announceChange(tx, sandboxId);
  }
}

function byOrgAndId(a: SandboxRef, b: SandboxRef): number {
  return compare(a.orgId, b.orgId) || compare(a.sandboxId, b.sandboxId);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
