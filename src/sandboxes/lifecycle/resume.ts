import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import { WriteBatch } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { openPauseReason } from '../../runs/pauses.js';
import { extendWanted } from '../../runs/queries.js';
import { lockSandbox, type LockedSandbox, type SandboxKey } from '../queries.js';
import { presentSandbox, type SandboxResponse } from '../row.js';
import { isBeingPaused } from './pause.js';
import { isPaused, pauseReason } from './paused.js';
import { refuseTransition } from './refusals.js';
import { queueRun } from './restart.js';
import { runUnderWay } from './run-under-way.js';
import { admitStart } from './start.js';
import { TRANSITIONS } from './state.js';

/**
 * Begins a run that continues the memory of a paused sandbox. A sandbox that runs or starts stays as it is. A refusal
 * by a quota or a budget leaves it paused. `queue`, `wantedUntil`: as for a start.
 */
export async function resumeSandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  { queue, wantedUntil = null }: { queue: boolean; wantedUntil?: Instant | null },
): Promise<SandboxResponse> {
  const { orgId, access } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const { status, id } = sandbox;
    if (isPaused(sandbox))
      return presentSandbox(await admitStart(ctx, tx, batch, { caller, sandbox, wantedUntil }), access);
    if (await isBeingPaused(tx, sandbox)) {
      if (queue) return queueRun(ctx, tx, batch, caller, sandbox);
      refuseTransition(status, 'resume', 'the sandbox is being paused: use wait_for=running, or try again');
    }
    if (TRANSITIONS[status].resume === 'refused')
      refuseTransition(status, 'resume', `the sandbox is ${status}, and not paused: start it`);
    if (status === 'starting') await extendWanted(batch, orgId, id, wantedUntil);
    return presentSandbox(sandbox, access);
  });
}

/**
 * Resumes a sandbox for a session, if its idleness has paused it (`lifecycle.on_idle`). Several sessions resume it
 * once. A pause that a caller requested stays.
 */
export async function resumeForSession(
  ctx: Context,
  caller: Caller,
  sandboxId: string,
  wantedUntil: Instant,
): Promise<void> {
  const { orgId } = caller;
  const cause = { reason: 'session_request' } as const;
  await inTransaction(ctx.pool, async (tx) => {
    const batch = new WriteBatch(tx);
    const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
    if (!sandbox) throw new ApiError('sandbox_not_found');
    if (sandbox.status === 'starting') await extendWanted(batch, orgId, sandboxId, wantedUntil);
    else if (await isPausedByIdleness(tx, sandbox)) {
      if (sandbox.status === 'stopping') await queueRun(ctx, tx, batch, caller, sandbox, { cause });
      else await admitStart(ctx, tx, batch, { caller, sandbox, wantedUntil, cause });
    }
    await batch.send();
  });
}

/** It is paused, or is being paused, because it was idle. */
export async function isPausedByIdleness(tx: Sql, sandbox: LockedSandbox): Promise<boolean> {
  const reason = isPaused(sandbox)
    ? await openPauseReason(tx, sandbox.org_id, sandbox.id)
    : sandbox.status === 'stopping' && (await runUnderWay(tx, sandbox))?.stop_reason;
  return reason === pauseReason('idle_timeout');
}
