import { isNarrowed } from '../access/access.js';
import type { Caller } from '../access/caller.js';
import { keyIdOf } from '../audit/events/actor.js';
import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { monthAfter, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import { decimalText } from '../prices/price.js';
import { ratioText } from './amount.js';
import { covers, hasLabel, type Budget } from './budget.js';
import { measureBudget, type Measured } from './measure.js';
import { isExhausted } from './present.js';
import { getEnforced } from './queries.js';

type Pricing = Pick<Context, 'settings'>;

/**
 * Refuses a start at `at` that a budget covers whose use until `at` reaches its limit. `tx`: the transaction that
 * starts. It needs no lock, because a start uses nothing yet. Only runs that were admitted below the limit can exceed
 * it.
 */
export async function refuseOverBudget(
  ctx: Pricing,
  tx: Sql,
  caller: Caller,
  { at, labels }: { at: Instant; labels: Readonly<Record<string, string>> },
): Promise<void> {
  const started = { labels, keyId: keyIdOf(caller.actor) };
  await refuseUsedUp(ctx, tx, caller, {
    at,
    isCovered: (budget) => covers(budget, started),
    refused: 'nothing that it covers can be started',
  });
}

/**
 * Refuses new labels of a started sandbox that bring it under the used up budget of a label. Otherwise a sandbox could
 * be started under other labels, and get its own ones back.
 */
export async function refuseLabelsOverBudget(
  ctx: Pricing,
  tx: Sql,
  caller: Caller,
  { at, before, after }: { at: Instant } & Record<'before' | 'after', Readonly<Record<string, string>>>,
): Promise<void> {
  await refuseUsedUp(ctx, tx, caller, {
    at,
    isCovered: ({ scope }) => scope.type === 'label' && hasLabel(after, scope) && !hasLabel(before, scope),
    refused: 'no sandbox that runs can get its label',
  });
}

async function refuseUsedUp(
  { settings: { priceBook: book } }: Pricing,
  tx: Sql,
  caller: Caller,
  { at, isCovered, refused }: { at: Instant; isCovered: (budget: Budget) => boolean; refused: string },
): Promise<void> {
  for (const budget of await getEnforced(tx, caller.orgId)) {
    if (!isCovered(budget)) continue;
    const measured = await measureBudget(tx, budget, { month: at, at, book });
    if (measured && isExhausted(budget, measured)) refuse(caller, budget, measured, { at, refused });
  }
}

/** A key that is narrowed to labels must not learn the totals of others. */
function refuse(
  { access }: Caller,
  budget: Budget,
  { used }: Measured,
  { at, refused }: { at: Instant; refused: string },
): never {
  const renews_at = shortInstant(monthAfter(startOfMonth(at)));
  const until = `${refused} until ${renews_at}`;
  if (isNarrowed(access)) {
    throw new ApiError('budget_exceeded', `a budget of the organization is used up: ${until}`, {
      budget_id: budget.id,
      name: null,
      limit: null,
      used: null,
      unit: null,
      renews_at,
    });
  }
  const unit = budget.currency ?? budget.measure;
  const limit = decimalText(budget.limit);
  const amount = ratioText(used);
  throw new ApiError(
    'budget_exceeded',
    `the budget "${budget.name}" is used up (${amount} of ${limit} ${unit}): ${until}, unless its limit is raised`,
    { budget_id: budget.id, name: budget.name, limit, used: amount, unit, renews_at },
  );
}
