import { QUOTAS } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { startOfMonth } from '../../lib/instant.js';
import { exhaustedHours } from '../../quotas/limits.js';
import { getLimits, listRunning, orgsAtRisk, usedHours } from '../../quotas/queries.js';
import { lockSandbox } from '../queries.js';
import { requestStop } from './stop.js';

const BATCH = 100;

/** Stops the sandboxes of organizations that have used up a hard cap of hours. */
export async function enforceHours(ctx: Context, signal: AbortSignal): Promise<void> {
  for (const orgId of await orgsAtRisk(ctx.pool)) {
    if (signal.aborted) return;
    const limits = await getLimits(ctx.pool, orgId);
    const at = ctx.now();
    if (!limits || !exhaustedHours(limits, await usedHours(ctx.pool, orgId, startOfMonth(at), at))) continue;
    await stopAll(ctx, orgId, signal);
  }
}

async function stopAll(ctx: Context, orgId: string, signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  do {
    const ids: string[] = await listRunning(ctx.pool, orgId, after, BATCH);
    for (const id of ids) {
      if (signal.aborted) return;
      await inTransaction(ctx.pool, async (tx) => {
        const sandbox = await lockSandbox(tx, orgId, { id, orWarm: true });
        if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return;
        await requestStop(tx, sandbox, QUOTAS, 'quota_exhausted', ctx.now());
      });
    }
    after = ids.length === BATCH ? ids.at(-1)! : null;
  } while (after !== null);
}
