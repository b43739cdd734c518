import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { startOfMonth } from '../lib/instant.js';
import { auditedFields } from './audited-fields.js';
import type { Budget } from './budget.js';
import { readLimit, refuseTakenName } from './create.js';
import { measureBudget } from './measure.js';
import { presentBudget, reachedThresholds } from './present.js';
import { deleteNotices, lockBudget, updateBudgetRow } from './queries.js';
import type { BudgetResponse, UpdateBudgetRequest } from './schema.js';

/**
 * Changes the given fields. Starts from now on are checked by the new values. Thresholds that the use no longer reaches
 * have an event again when it does.
 */
export async function updateBudget(
  ctx: Context,
  caller: Writer,
  id: string,
  { name, limit, thresholds, action }: UpdateBudgetRequest,
): Promise<BudgetResponse> {
  const { orgId, actor } = caller;
  const wanted = limit === undefined ? undefined : readLimit(limit);
  try {
    return await inWrite(ctx, caller, async (tx) => {
      const before = await lockBudget(tx, orgId, id);
      if (!before) throw new ApiError('budget_not_found');
      const at = ctx.now();
      const after: Budget = {
        ...before,
        name: name ?? before.name,
        limit: wanted ?? before.limit,
        thresholds: thresholds?.toSorted((a, b) => a - b) ?? before.thresholds,
        action: action ?? before.action,
        updated_at: at,
      };
      const { priceBook: book } = ctx.settings;
      const measured = await measureBudget(tx, after, { month: at, at, book });
      await updateBudgetRow(tx, after);
      if (measured && wanted)
        await deleteNotices(tx, after, startOfMonth(at), reachedThresholds(after, measured));
      await recordEvent(tx, {
        orgId,
        type: 'budget_updated',
        actor,
        resourceId: id,
        at,
        payload: { budget_id: id, name: before.name, before: fieldsOf(before), after: fieldsOf(after) },
      });
      return presentBudget(after, measured, at);
    });
  } catch (error) {
    if (name !== undefined) refuseTakenName(error, name);
    throw error;
  }
}

function fieldsOf(budget: Budget) {
  return { name: budget.name, ...auditedFields(budget) };
}
