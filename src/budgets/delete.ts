import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { deleteBudgetRow, lockBudget } from './queries.js';

/** Deletes a budget. Starts that it refused are accepted again. */
export async function deleteBudget(ctx: Context, caller: Writer, id: string): Promise<{ message: string }> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx) => {
    const budget = await lockBudget(tx, orgId, id);
    if (!budget) throw new ApiError('budget_not_found');
    await deleteBudgetRow(tx, orgId, id);
    await recordEvent(tx, {
      orgId,
      type: 'budget_deleted',
      actor,
      resourceId: id,
      at: ctx.now(),
      payload: { budget_id: id, name: budget.name },
    });
    return { message: 'budget deleted' };
  });
}
