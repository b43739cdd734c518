import { BUDGETS } from '../../audit/events/actor.js';
import { covers, hasLabel, KEEP_LABEL, type Budget } from '../../budgets/budget.js';
import { checkDueBudget } from '../../budgets/check-due.js';
import { isUnchanged, listStoppable } from '../../budgets/queries.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import type { LockedSandbox } from '../queries.js';
import { runUnderWay } from './run-under-way.js';
import { stopEach } from './stop-each.js';

/** Checks every budget that is due. Stops what a used up budget with the action `stop` covers. */
export async function enforceBudgets(ctx: Context, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const checked = await checkDueBudget(ctx);
    if (!checked) return;
    const { budget, stopsUntil } = checked;
    if (stopsUntil === null) continue;
    const stops = {
      orgId: budget.org_id,
      actor: BUDGETS,
      reason: 'budget_exhausted',
      until: stopsUntil,
      list: async (after: string | null, limit: number) => listStoppable(ctx.pool, budget, after, limit),
      concerns: async (tx: Sql, sandbox: LockedSandbox) => mayStop(tx, budget, sandbox),
    } as const;
    await stopEach(ctx, stops, signal);
  }
}

/** A caller may have changed the labels, begun another run, or raised the limit, since the list was read. */
async function mayStop(tx: Sql, budget: Budget, sandbox: LockedSandbox): Promise<boolean> {
  const labels = sandbox.spec?.labels ?? {};
  if (hasLabel(labels, KEEP_LABEL)) return false;
  const keyId = (await runUnderWay(tx, sandbox))?.started_by_key ?? null;
  return covers(budget, { labels, keyId }) && (await isUnchanged(tx, budget));
}
