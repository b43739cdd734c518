import { BUDGETS } from '../../audit/events/actor.js';
import { hasLabel, KEEP_LABEL, type Budget } from '../../budgets/budget.js';
import { checkDueBudget } from '../../budgets/check-due.js';
import { isUnchanged, listStoppable } from '../../budgets/queries.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { lockSandbox } from '../queries.js';
import { requestStop } from './stop.js';

const BATCH = 100;

/** Checks every budget that is due, and stops the sandboxes of those that are used up and say so. */
export async function enforceBudgets(ctx: Context, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const checked = await checkDueBudget(ctx);
    if (!checked) return;
    if (checked.stops) await stopCovered(ctx, checked.budget, signal);
  }
}

async function stopCovered(ctx: Context, budget: Budget, signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  do {
    const ids: string[] = await listStoppable(ctx.pool, budget, after, BATCH);
    for (const id of ids) {
      if (signal.aborted) return;
      await inTransaction(ctx.pool, async (tx) => {
        const sandbox = await lockSandbox(tx, budget.org_id, { id, orWarm: true });
        if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return;
        // A caller may have changed the labels, or raised the limit, since the list was read.
        const labels = sandbox.spec?.labels ?? {};
        if (hasLabel(labels, KEEP_LABEL)) return;
        if (budget.scope.type === 'label' && !hasLabel(labels, budget.scope)) return;
        if (!(await isUnchanged(tx, budget))) return;
        await requestStop(tx, sandbox, BUDGETS, 'budget_exhausted', ctx.now());
      });
    }
    after = ids.length === BATCH ? ids.at(-1)! : null;
  } while (after !== null);
}
