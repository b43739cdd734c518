import { recordEvent } from '../../audit/events/record.js';
import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import type { WriteBatch } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { reserve } from '../../quotas/reserve.js';
import { checkSize } from '../../quotas/size-limits.js';
import { extendWanted, replaceStopReason } from '../../runs/queries.js';
import { nextRunOf, type NextRun, type RunCause } from './next-run.js';
import { isBeingPaused } from './pause.js';
import { isPaused, recordDiscarded } from './paused.js';
import { lockSandbox, updateSandboxRow, type LockedSandbox, type SandboxKey } from '../queries.js';
import { refuseForeign } from './refusals.js';
import { beginRun } from './request-run.js';
import { presentSandbox, type SandboxResponse } from '../row.js';
import { TRANSITIONS } from './state.js';
import { requestStop } from './stop.js';

/**
 * Ends the current run and admits its successor, or starts a settled sandbox. The successor keeps the quota of the
 * current run. It begins in the transaction that records the end (`record.ts`), so no crash leaves the sandbox stopped.
 */
export async function restartSandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
): Promise<SandboxResponse> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const outcome = TRANSITIONS[sandbox.status].restart;
    if (outcome === 'same') {
      await extendWanted(batch, orgId, sandbox.id, null);
      return presentSandbox(sandbox, caller.access);
    }
    const endsByPause = await isBeingPaused(tx, sandbox);
    if (outcome === 'queued' && !endsByPause) return queueRun(ctx, tx, batch, caller, sandbox);
    const at = ctx.now();
    // The run of a resume that waits for the end of the pause is admitted already.
    const queued = endsByPause ? sandbox.next_run : null;
    const next = queued ?? (await admitRestart(ctx, tx, caller, sandbox, at));
    // The engine may have saved the memory by now. Then it is removed.
    if (endsByPause) await replaceStopReason(tx, orgId, sandbox.run_id!, 'restart');
    if (outcome === 'stopping' || endsByPause) {
      return presentSandbox(await requestStop(batch, sandbox, actor, 'restart', at, next), caller.access);
    }
    const cold = { ...sandbox, paused_at: null };
    if (isPaused(sandbox))
      await recordDiscarded(batch, sandbox, { actor, reason: 'restart', at, after: 'starting' });
    const admitted = await beginRun(batch, cold, next, at);
    const ended = isPaused(sandbox) ? { paused_at: null } : {};
    await updateSandboxRow(batch, orgId, sandbox.id, { ...admitted, ...ended }, at);
    await announceChange(batch, sandbox.id);
    return presentSandbox({ ...cold, ...admitted }, caller.access);
  });
}

/** It counts as running until its memory is saved. */
function isPausing({ status, pausing }: LockedSandbox): boolean {
  return status === 'stopping' && pausing;
}

/** A running sandbox passes its place in the quota on. */
async function admitRestart(
  ctx: Context,
  tx: Sql,
  caller: Caller,
  sandbox: LockedSandbox,
  at: Instant,
): Promise<NextRun> {
  const { ephemeral, spec, status } = sandbox;
  const runSpec = refuseForeign(sandbox, 'restart', ctx.runtime.name);
  const limits = await reserve(ctx, tx, caller, {
    start: {
      ephemeral,
      at,
      labels: spec?.labels ?? {},
      isCounted: status === 'running' || isPausing(sandbox),
    },
  });
  checkSize(limits, runSpec);
  return nextRunOf(runSpec, limits, caller.actor);
}

/** Admits the run after a stop. The transaction has locked the sandbox. A second call joins the first. */
export async function queueRun(
  ctx: Context,
  tx: Sql,
  batch: WriteBatch,
  caller: Caller,
  sandbox: LockedSandbox,
  { cause }: { cause?: RunCause } = {},
): Promise<SandboxResponse> {
  if (sandbox.next_run !== null) return presentSandbox(sandbox, caller.access);
  const runSpec = refuseForeign(sandbox, 'start', ctx.runtime.name);
  const { org_id: orgId, id, name, run_id, status } = sandbox;
  const at = ctx.now();
  const limits = await reserve(ctx, tx, caller, {
    start: {
      ephemeral: sandbox.ephemeral,
      at,
      labels: sandbox.spec?.labels ?? {},
      isCounted: isPausing(sandbox),
    },
  });
  checkSize(limits, runSpec);
  const next: NextRun = { ...nextRunOf(runSpec, limits, caller.actor), ...(cause && { cause }) };
  await recordEvent(batch, {
    orgId,
    type: 'sandbox_start_queued',
    actor: caller.actor,
    resourceId: id,
    at,
    payload: {
      sandbox_id: id,
      name,
      run_id,
      previous_status: status,
      status,
      reason: 'requested',
      ...cause,
    },
  });
  await updateSandboxRow(batch, orgId, id, { next_run: next }, at);
  await announceChange(batch, id);
  return presentSandbox(sandbox, caller.access);
}
