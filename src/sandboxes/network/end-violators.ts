import { NETWORK } from '../../audit/events/actor.js';
import type { WorkerContext } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { microsOf } from '../../lib/instant.js';
import { requestStop } from '../lifecycle/stop.js';
import { lockSandbox } from '../queries.js';
import type { RecordWriter } from './write-record.js';

/** Ends the sandboxes that sent a placeholder to a place for which its entry ends them. A failure is repeated. */
export async function endViolators(ctx: WorkerContext, writer: RecordWriter): Promise<void> {
  const { ending } = ctx.network;
  for (const [sandboxId, violatedAt] of ending) {
    try {
      const orgId = await writer.orgOf(ctx, sandboxId);
      if (orgId !== undefined) await end(ctx, orgId, sandboxId, violatedAt);
      // A later violation of the same sandbox has another time.
      if (ending.get(sandboxId) === violatedAt) ending.delete(sandboxId);
    } catch (error) {
      // The others and the record do not wait for this one.
      ctx.log.error(
        { err: error, sandboxId },
        'a sandbox that violated the terms of a secret cannot be ended',
      );
    }
  }
}

/** Without a grace period, in which it would send more. */
async function end(ctx: WorkerContext, orgId: string, sandboxId: string, violatedAt: number): Promise<void> {
  let isEnding = true;
  try {
    isEnding = await inTransaction(ctx.pool, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId, orWarm: true });
      if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return false;
      // The run of the violation is over, and a caller has started the next one.
      if (sandbox.started_at !== null && microsOf(sandbox.started_at) / 1_000n > violatedAt) return false;
      await requestStop(tx, sandbox, NETWORK, 'secret_violation', ctx.now());
      return true;
    });
    if (isEnding) ctx.log.warn({ orgId, sandboxId }, 'a sandbox violated the terms of a secret: stopping it');
  } finally {
    // If the database cannot record it, the run ends all the same.
    if (isEnding) await ctx.runtime.stop(sandboxId, 0);
  }
}
