import type { Sql } from '../db/pool.js';
import { microsOf, monthAfter, startOfMonth, type Instant } from '../lib/instant.js';
import {
  COMPUTE_METRICS,
  decimalText,
  halfUp,
  METRICS,
  project,
  sumOf,
  UNITS,
  type PriceBook,
  type Quantities,
} from '../prices/price.js';
import { Allowance } from '../usage/allowance.js';
import { usedDays, type UsedDay } from '../usage/summary-queries.js';
import { withQuotas } from '../usage/summary.js';
import type { Window } from '../usage/window.js';
import { PLACES, ratioText, type Ratio } from './amount.js';
import { METRIC_OF, type Budget } from './budget.js';
import { usedDaysOfKey, usedDaysOfLabel, type ClosedDay, type ScopedUse } from './usage-queries.js';

export interface Measured {
  used: Ratio;
  /** The use at the end of the month if it continues as until now, as a decimal number. */
  forecast: string;
  /** Past days that could be stored for the budget. */
  unstored: ClosedDay[];
}

type Subject = Pick<Budget, 'org_id' | 'id' | 'scope' | 'measure' | 'currency'>;

/**
 * The use of a budget in the UTC month of `month`: closed runs, and open runs until `at`. It stays a quotient of whole
 * numbers. Undefined: the installation cannot price it.
 */
export async function measureBudget(
  sql: Sql,
  budget: Subject,
  { month, at, book }: { month: Instant; at: Instant; book: PriceBook | null },
): Promise<Measured | undefined> {
  const since = startOfMonth(month);
  const window = { since, until: at, now: at };
  const elapsed = microsOf(at) - microsOf(since);
  const length = microsOf(monthAfter(since)) - microsOf(since);
  if (budget.measure === 'cost') {
    if (book === null || book.currency !== budget.currency) return undefined;
    return measureCost(sql, budget, window, { book, elapsed, length });
  }
  const { days, unstored } = await daysOf(sql, budget, window);
  const { quantity, unit } = quantityOf(budget, days);
  return {
    used: { numerator: quantity, denominator: unit },
    forecast: ratioText({ numerator: project(quantity, elapsed, length), denominator: unit }),
    unstored,
  };
}

const HOUR_MICROS = 3_600_000_000n;

function quantityOf({ measure }: Subject, days: readonly UsedDay[]): { quantity: bigint; unit: bigint } {
  const metric = METRIC_OF[measure];
  if (metric === undefined) {
    return { quantity: days.reduce((sum, { micros }) => sum + micros, 0n), unit: HOUR_MICROS };
  }
  return { quantity: sumOf(days.map(({ used }) => used))[metric], unit: UNITS[metric] };
}

async function daysOf(sql: Sql, budget: Subject, window: Window): Promise<ScopedUse> {
  const { org_id, scope } = budget;
  switch (scope.type) {
    case 'organization':
      return { days: await usedDays(sql, org_id, window), unstored: [] };
    case 'label':
      return usedDaysOfLabel(sql, budget, scope, window);
    case 'api_key':
      return usedDaysOfKey(sql, budget, scope.api_key_id, window);
  }
}

interface Terms {
  book: PriceBook;
  elapsed: bigint;
  length: bigint;
}

/**
 * The sum of the costs of days, as in the usage by label: the included hours of the organization are used up day by
 * day. Only the organization has costs of storage, which has no labels and no key.
 */
async function measureCost(
  sql: Sql,
  budget: Subject,
  window: Window,
  { book: ownBook, ...time }: Terms,
): Promise<Measured> {
  const { org_id: orgId, scope } = budget;
  const book = await withQuotas(sql, orgId, ownBook);
  const metrics = scope.type === 'organization' ? METRICS : COMPUTE_METRICS;
  const allowance = await Allowance.read(sql, orgId, window, { book, metrics });
  const { own, unstored } =
    scope.type === 'organization'
      ? { own: allowance.days, unstored: [] }
      : byDay(await daysOf(sql, budget, window));
  const costs = [...own].map(([day, used]) => allowance.costOf(day, used));
  const scale = costs[0]?.scale ?? 0;
  return {
    used: { numerator: costs.reduce((sum, { value }) => sum + value, 0n), denominator: 10n ** BigInt(scale) },
    forecast: forecastCost(sumOf([...allowance.days.values()]), sumOf([...own.values()]), { book, ...time }),
    unstored,
  };
}

function byDay({ days, unstored }: ScopedUse): { own: Map<string, Quantities>; unstored: ClosedDay[] } {
  const own = new Map<string, Quantities>();
  for (const { day, used } of days) own.set(day, sumOf([own.get(day) ?? {}, used]));
  return { own, unstored };
}

/**
 * The usage of the organization is extrapolated and priced, since included quantities are used up first. A part of it
 * gets its share of each metric.
 */
function forecastCost(all: Quantities, own: Quantities, { book, elapsed, length }: Terms): string {
  const value = METRICS.reduce((sum, metric) => {
    if (own[metric] === 0n) return sum;
    const { value: included, scale: includedScale } = book.included[metric];
    const { value: price, scale } = book.prices[metric];
    const shift = 10n ** BigInt(includedScale);
    const charged = project(all[metric], elapsed, length) * shift - included * UNITS[metric];
    if (charged <= 0n) return sum;
    const denominator = UNITS[metric] * shift * 10n ** BigInt(scale) * all[metric];
    return sum + halfUp(charged * price * own[metric] * 10n ** BigInt(PLACES), denominator);
  }, 0n);
  return decimalText({ value, scale: PLACES });
}
