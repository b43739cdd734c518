import { QUOTAS } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import { monthAfter, startOfMonth } from '../../lib/instant.js';
import { exhaustedHours } from '../../quotas/limits.js';
import { getLimits, listRunning, orgsAtRisk, usedHours } from '../../quotas/queries.js';
import { stopEach } from './stop-each.js';

/** Stops the sandboxes of organizations that have used up a hard cap of hours. */
export async function enforceHours(ctx: Context, signal: AbortSignal): Promise<void> {
  for (const orgId of await orgsAtRisk(ctx.pool)) {
    if (signal.aborted) return;
    const limits = await getLimits(ctx.pool, orgId);
    const at = ctx.now();
    const month = startOfMonth(at);
    if (!limits || !exhaustedHours(limits, await usedHours(ctx.pool, orgId, month, at))) continue;
    const stops = {
      orgId,
      actor: QUOTAS,
      reason: 'quota_exhausted',
      until: monthAfter(month),
      list: async (after: string | null, limit: number) => listRunning(ctx.pool, orgId, after, limit),
    } as const;
    await stopEach(ctx, stops, signal);
  }
}
