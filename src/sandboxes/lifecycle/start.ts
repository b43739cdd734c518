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
import { extendWanted } from '../../runs/queries.js';
import { nextRunOf, type RunCause } from './next-run.js';
import { lockSandbox, updateSandboxRow, type LockedSandbox, type SandboxKey } from '../queries.js';
import { refuseForeign, refuseTransition } from './refusals.js';
import { beginRun } from './request-run.js';
import { queueRun } from './restart.js';
import { presentSandbox, type SandboxResponse, type SandboxRow } from '../row.js';
import { TRANSITIONS } from './state.js';

/**
 * Admits a run, or joins a start in flight. `queue`: the run of a stopping sandbox follows its stop; otherwise it is
 * refused. `wantedUntil`: the run ends then if it still has no place, unless another caller wants it for longer.
 */
export async function startSandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  { queue, wantedUntil = null }: { queue: boolean; wantedUntil?: Instant | null },
): Promise<SandboxResponse> {
  const { orgId } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    if (queue && sandbox.status === 'stopping') return queueRun(ctx, tx, batch, caller, sandbox);
    const outcome = TRANSITIONS[sandbox.status].start;
    if (outcome === 'refused') refuseTransition(sandbox.status, 'start');
    if (outcome === 'same') {
      await extendWanted(batch, orgId, sandbox.id, wantedUntil);
      return presentSandbox(sandbox, caller.access);
    }
    return presentSandbox(await admitStart(ctx, tx, batch, { caller, sandbox, wantedUntil }), caller.access);
  });
}

export interface Start {
  caller: Caller;
  sandbox: LockedSandbox;
  wantedUntil: Instant | null;
  cause?: RunCause;
}

/** Admits a run of a settled sandbox. The transaction has locked the sandbox. */
export async function admitStart(
  ctx: Context,
  tx: Sql,
  batch: WriteBatch,
  { caller, sandbox, wantedUntil, cause }: Start,
): Promise<SandboxRow> {
  const { orgId, actor } = caller;
  const runSpec = refuseForeign(sandbox, 'start', ctx.runtime.name);
  const at = ctx.now();
  const limits = await reserve(ctx, tx, caller, {
    start: { ephemeral: sandbox.ephemeral, at, labels: sandbox.spec?.labels ?? {} },
  });
  checkSize(limits, runSpec);
  const next = { ...nextRunOf(runSpec, limits, actor, wantedUntil), ...(cause && { cause }) };
  const admitted = await beginRun(batch, sandbox, next, at);
  await updateSandboxRow(batch, orgId, sandbox.id, { ...admitted }, at);
  await announceChange(batch, sandbox.id);
  return { ...sandbox, ...admitted };
}
