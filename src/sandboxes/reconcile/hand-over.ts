import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import { noteHandedOver } from '../../runs/queries.js';
import { readRunSpec, type ReconcileRow } from './queries.js';

/**
 * Gives a sandbox of a pool the parts of its specification that it lacks. Process 1 takes them once, and the store
 * notes it afterwards: after a crash in between they are handed over again, without effect.
 */
export async function handOverParts(
  ctx: Context,
  { orgId, sandboxId, wanted }: ReconcileRow,
  write: (work: (tx: EventSql) => Promise<void>) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const runId = wanted.runId ?? '';
  const { name, run_spec: spec } = await readRunSpec(ctx.pool, orgId, sandboxId);
  const secrets = { registry: null, values: {} };
  try {
    signal.throwIfAborted();
    await ctx.runtime.handOver?.({ orgId, sandboxId, runId, name, spec, secrets }, signal);
  } catch (error) {
    // Somebody has stopped the sandbox, or the term is over.
    if (signal.aborted) return;
    throw error;
  }
  await write(async (tx) => {
    await noteHandedOver(tx, orgId, runId);
    await announceChange(tx, sandboxId);
  });
}
