import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { violatedConstraint, type Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { checkLabels } from '../lib/labels.js';
import { newId } from '../lib/uuid.js';
import { readDecimal } from '../prices/price.js';
import { DEFAULT_THRESHOLDS, type Budget, type BudgetScope } from './budget.js';
import { auditedFields } from './audited-fields.js';
import { showBudget } from './present.js';
import { countBudgets, insertBudget, isKeyActive } from './queries.js';
import type { BudgetResponse, CreateBudgetRequest } from './schema.js';

/** Creates a budget. The usage of the current month counts from its start. */
export async function createBudget(
  ctx: Context,
  caller: Writer,
  request: CreateBudgetRequest,
): Promise<BudgetResponse> {
  const { orgId, actor } = caller;
  const { name, scope, measure, action = 'warn', thresholds = DEFAULT_THRESHOLDS } = request;
  const currency = measure === 'cost' ? currencyOf(ctx) : null;
  const at = ctx.now();
  const budget: Budget = {
    org_id: orgId,
    id: newId(),
    name,
    scope,
    measure,
    limit: readLimit(request.limit),
    currency,
    thresholds: thresholds.toSorted((a, b) => a - b),
    action,
    created_at: at,
    created_by: actor,
    updated_at: at,
    checked_until: at,
  };
  try {
    return await inWrite(ctx, caller, async (tx) => {
      await checkScope(tx, orgId, scope);
      const { budgetsPerOrg: limit } = ctx.settings;
      const used = await countBudgets(tx, orgId);
      if (used >= limit) {
        throw new ApiError(
          'quota_exceeded',
          `an organization has at most ${limit} budgets: delete one first, or ask the operator for more`,
          { limit, used },
        );
      }
      await insertBudget(tx, budget);
      await recordEvent(tx, {
        orgId,
        type: 'budget_created',
        actor,
        resourceId: budget.id,
        at,
        payload: { budget_id: budget.id, name, scope, measure, currency, ...auditedFields(budget) },
      });
      return showBudget(ctx, tx, budget, at);
    });
  } catch (error) {
    refuseTakenName(error, name);
    throw error;
  }
}

export function readLimit(text: string): Budget['limit'] {
  const limit = readDecimal(text);
  if (limit.value > 0n) return limit;
  throw new ApiError(
    'invalid_request',
    'limit must be above 0: to stop everything, suspend the organization',
    {
      field: 'limit',
    },
  );
}

export function refuseTakenName(error: unknown, name: string): void {
  if (violatedConstraint(error) !== 'budgets_name') return;
  throw new ApiError('name_already_exists', `the organization has a budget with the name "${name}"`, {
    name,
  });
}

function currencyOf({ settings: { priceBook } }: Context): string {
  if (priceBook) return priceBook.currency;
  throw new ApiError(
    'invalid_request',
    'measure must not be "cost": the installation has no price book. Choose hours, or ask the operator for a price book',
    { field: 'measure' },
  );
}

async function checkScope(tx: Sql, orgId: string, scope: BudgetScope): Promise<void> {
  if (scope.type === 'label') {
    const bad = checkLabels({ [scope.key]: scope.value });
    if (bad) throw new ApiError('invalid_request', bad.message, { field: 'scope.key' });
  }
  if (scope.type === 'api_key' && !(await isKeyActive(tx, orgId, scope.api_key_id))) {
    throw new ApiError(
      'invalid_request',
      'scope.api_key_id must be a key that is not revoked: see GET /v1/keys',
      {
        field: 'scope.api_key_id',
      },
    );
  }
}
