import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { monthAfter, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import { decimalText } from '../prices/price.js';
import { percentOf, ratioText, reaches } from './amount.js';
import type { Budget } from './budget.js';
import { measureBudget, type Measured } from './measure.js';
import type { BudgetResponse } from './schema.js';

/** A budget with its use until `at`. */
export async function showBudget(
  { settings: { priceBook: book } }: Pick<Context, 'settings'>,
  sql: Sql,
  budget: Budget,
  at: Instant,
): Promise<BudgetResponse> {
  return presentBudget(budget, await measureBudget(sql, budget, { month: at, at, book }), at);
}

export function reachedThresholds({ thresholds, limit }: Budget, { used }: Measured): number[] {
  return thresholds.filter((threshold) => reaches(used, limit, threshold));
}

export function isExhausted({ limit }: Budget, { used }: Measured): boolean {
  return reaches(used, limit, 100);
}

export function presentBudget(budget: Budget, measured: Measured | undefined, at: Instant): BudgetResponse {
  const { id, org_id, name, scope, measure, limit, currency, thresholds, action, created_by } = budget;
  const reached = measured ? reachedThresholds(budget, measured) : [];
  return {
    id,
    org_id,
    name,
    scope,
    measure,
    limit: decimalText(limit),
    currency,
    thresholds,
    action,
    period_start: shortInstant(startOfMonth(at)),
    period_end: shortInstant(monthAfter(startOfMonth(at))),
    used: measured ? ratioText(measured.used) : null,
    forecast: measured?.forecast ?? null,
    used_percent: measured ? percentOf(measured.used, limit) : null,
    reached,
    state: stateOf(budget, measured, reached),
    created_at: shortInstant(budget.created_at),
    created_by,
    updated_at: shortInstant(budget.updated_at),
  };
}

function stateOf(
  budget: Budget,
  measured: Measured | undefined,
  reached: readonly number[],
): BudgetResponse['state'] {
  if (!measured) return 'unpriced';
  if (isExhausted(budget, measured)) return 'exhausted';
  return reached.length > 0 ? 'warning' : 'ok';
}
