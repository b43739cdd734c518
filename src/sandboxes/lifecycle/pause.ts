import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import type { EventTarget } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { setStopReason } from '../../runs/queries.js';
import { isVolumeMount } from '../../spec/mount-schema.js';
import { lockSandbox, updateSandboxRow, type LockedSandbox, type SandboxKey } from '../queries.js';
import { presentSandbox, type SandboxResponse, type SandboxRow } from '../row.js';
import { isPaused, isPauseReason, pauseReason, refuseWithoutPauses, type PauseCause } from './paused.js';
import { refuseForeign, refuseTransition } from './refusals.js';
import { runUnderWay } from './run-under-way.js';
import { TRANSITIONS } from './state.js';

/**
 * Saves the memory of the run, and ends the run. A paused sandbox, and one that is being paused, stay as they are. An
 * engine that cannot save the memory lets the sandbox run on.
 */
export async function pauseSandbox(ctx: Context, caller: Writer, key: SandboxKey): Promise<SandboxResponse> {
  const { orgId, actor, access } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    refuseWithoutPauses(ctx.runtime);
    if (isPaused(sandbox) || (await isBeingPaused(tx, sandbox))) return presentSandbox(sandbox, access);
    if (TRANSITIONS[sandbox.status].pause === 'refused') refuseTransition(sandbox.status, 'pause');
    const { mounts } = refuseForeign(sandbox, 'pause', ctx.runtime.name);
    if (mounts.some(isVolumeMount) && !ctx.runtime.capabilities.has('pause_with_volumes'))
      refuseTransition(
        sandbox.status,
        'pause',
        `the ${ctx.runtime.name} runtime cannot save the memory of a sandbox that mounts volumes: stop it, its disk and its volumes stay`,
      );
    if (sandbox.ephemeral)
      refuseTransition(
        sandbox.status,
        'pause',
        'an ephemeral sandbox is removed when its run ends, and a pause ends its run: create it without lifecycle.ephemeral',
      );
    ctx.disk.checkAll();
    return presentSandbox(await requestPause(batch, sandbox, actor, 'requested', ctx.now()), access);
  });
}

/** The run ends by a pause that is under way. */
export async function isBeingPaused(tx: Sql, sandbox: LockedSandbox): Promise<boolean> {
  if (sandbox.status !== 'stopping') return false;
  return isPauseReason((await runUnderWay(tx, sandbox))?.stop_reason);
}

/** Writes the request to pause. The transaction has locked the sandbox. */
export async function requestPause(
  target: EventTarget,
  sandbox: LockedSandbox,
  actor: EventActor,
  cause: PauseCause,
  at: Instant,
): Promise<SandboxRow> {
  const { org_id: orgId, id, name, run_id, status } = sandbox;
  await recordEvent(target, {
    orgId,
    type: 'sandbox_pause_requested',
    actor,
    resourceId: id,
    at,
    payload: { sandbox_id: id, name, run_id, previous_status: status, status: 'stopping', reason: cause },
  });
  if (run_id !== null) await setStopReason(target, orgId, run_id, pauseReason(cause));
  const change = {
    status: 'stopping',
    status_reason: null,
    last_failure_message: null,
    next_run: null,
    pausing: true,
  } as const;
  await updateSandboxRow(target, orgId, id, change, at);
  await announceChange(target, id);
  return { ...sandbox, ...change };
}
