import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { readCursor } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { showBudget } from './present.js';
import { getBudget, getBudgets } from './queries.js';
import type { BudgetResponse } from './schema.js';

/** One page by name. All budgets of it are measured at one instant, from one snapshot. */
export async function listBudgets(
  ctx: Context,
  orgId: string,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<BudgetResponse>> {
  const binding = ['budgets'];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string] | undefined;
  const at = ctx.now();
  return inTransaction(ctx.pool, async (tx) => {
    await tx.query('set transaction isolation level repeatable read, read only');
    const shown = new Map<string, BudgetResponse>();
    const budgets = await getBudgets(tx, orgId, after?.[0], limit + 1);
    for (const budget of budgets.slice(0, limit)) shown.set(budget.id, await showBudget(ctx, tx, budget, at));
    return toPage(
      budgets,
      limit,
      ({ id }) => shown.get(id)!,
      ({ name }) => ctx.cursors.encode(orgId, binding, [name]),
    );
  });
}

export async function readBudget(ctx: Context, orgId: string, id: string): Promise<BudgetResponse> {
  return inTransaction(ctx.pool, async (tx) => {
    await tx.query('set transaction isolation level repeatable read, read only');
    const budget = await getBudget(tx, orgId, id);
    if (!budget) throw new ApiError('budget_not_found');
    return showBudget(ctx, tx, budget, ctx.now());
  });
}
