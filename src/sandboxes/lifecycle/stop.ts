import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { EventTarget } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { replaceStopReason, setStopReason } from '../../runs/queries.js';
import type { NextRun } from './next-run.js';
import { isBeingPaused } from './pause.js';
import { discardMemory, isPaused } from './paused.js';
import { lockSandbox, updateSandboxRow, type LockedSandbox, type SandboxKey } from '../queries.js';
import { refuseForeign, refuseTransition } from './refusals.js';
import { presentSandbox, type SandboxResponse, type SandboxRow } from '../row.js';
import { TRANSITIONS } from './state.js';

/** Asks the run to end. A settled or stopping sandbox stays as it is. The stop cancels an admitted successor. */
export async function stopSandbox(ctx: Context, caller: Writer, key: SandboxKey): Promise<SandboxResponse> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const outcome = TRANSITIONS[sandbox.status].stop;
    if (outcome === 'refused') refuseTransition(sandbox.status, 'stop');
    if (isPaused(sandbox))
      return presentSandbox(await discardMemory(batch, sandbox, actor, ctx.now()), caller.access);
    const isFollowed = sandbox.status === 'stopping' && sandbox.next_run !== null;
    const isPausing = await isBeingPaused(tx, sandbox);
    if (outcome === 'same' && !isFollowed && !isPausing) return presentSandbox(sandbox, caller.access);
    refuseForeign(sandbox, 'stop', ctx.runtime.name);
    // The engine may have saved the memory by now. Then it is removed.
    if (isPausing) await replaceStopReason(tx, orgId, sandbox.run_id!, 'requested');
    return presentSandbox(await requestStop(batch, sandbox, actor, 'requested', ctx.now()), caller.access);
  });
}

export type StopReason =
  | 'requested'
  | 'restart'
  | 'max_duration_exceeded'
  | 'idle_timeout'
  | 'quota_exhausted'
  | 'budget_exhausted'
  | 'disk_full'
  | 'secret_violation';

/** Writes the request to end a run. The transaction has locked the sandbox. `next`: the successor of the run. */
export async function requestStop(
  target: EventTarget,
  sandbox: LockedSandbox,
  actor: EventActor,
  reason: StopReason,
  at: Instant,
  next: NextRun | null = null,
): Promise<SandboxRow> {
  const { org_id: orgId, id, name, run_id, status } = sandbox;
  await recordEvent(target, {
    orgId,
    type: 'sandbox_stop_requested',
    actor,
    resourceId: id,
    at,
    payload: { sandbox_id: id, name, run_id, previous_status: status, status: 'stopping', reason },
  });
  if (run_id !== null) await setStopReason(target, orgId, run_id, reason);
  const change = { status: 'stopping', status_reason: null, next_run: next, pausing: false } as const;
  await updateSandboxRow(target, orgId, id, change, at);
  await announceChange(target, id);
  return { ...sandbox, ...change };
}
