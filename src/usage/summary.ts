import type { Sql } from '../db/pool.js';
import { badParameter } from '../http/errors.js';
import { csvLines } from '../lib/csv.js';
import { instantFromMicros, microsOf, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import {
  amountOf,
  COMPUTE_METRICS,
  inUnits,
  METRICS,
  project,
  sumOf,
  type Metric,
  type PriceBook,
  type Quantities,
} from '../prices/price.js';
import type { Format } from './queries.js';
import type { UsageSummary } from './schema.js';
import { computeDays, includedHours, storageDays, storedBytes } from './summary-queries.js';
import type { Window } from './window.js';

const GIB = 1024 ** 3;

export interface Period {
  start: Instant;
  end: Instant;
}

/** Reads `2026-11`. Default: the current month. */
export function readMonth(text: string | undefined, now: Instant): Period {
  if (text !== undefined && !/^\d{4}-(0[1-9]|1[0-2])$/.test(text)) {
    throw badParameter('month', 'month must be a UTC month such as 2026-11');
  }
  const start = text === undefined ? startOfMonth(now) : `${text}-01T00:00:00.000000Z`;
  if (start > now || start < '0001' || start > '9999-12') {
    throw badParameter('month', 'month must be one that has begun');
  }
  const next = new Date(Date.parse(start));
  next.setUTCMonth(next.getUTCMonth() + 1);
  return { start, end: instantFromMicros(BigInt(next.getTime()) * 1000n) };
}

/**
 * The usage and the cost of a month. Every line is rounded, and the total is the sum of the rounded lines. The
 * projection extrapolates quantities, not amounts, because included quantities are used up first. Without a price book
 * the cost is 0.
 */
export async function summarize(
  tx: Sql,
  orgId: string,
  { start, end }: Period,
  now: Instant,
  book: PriceBook | null,
): Promise<UsageSummary> {
  const window = { since: start, until: end, now };
  const days = await totalsByDay(tx, orgId, window);
  const totals = sumOf([...days.values()]);
  const effective = book && (await withQuotas(tx, orgId, book));
  const lines = METRICS.map((metric) => ({
    name: metric.replace(/_hour$/, ''),
    quantity: inUnits(metric, totals[metric]),
    unit: metric,
    amount_cents: toNumber(effective ? amountOf(effective, metric, totals[metric]) : 0n),
  }));
  const total = lines.reduce((sum, { amount_cents }) => sum + amount_cents, 0);
  const elapsed = microsOf(now) - microsOf(start);
  const length = microsOf(end) - microsOf(start);
  const projected = METRICS.reduce(
    (sum, metric) =>
      sum + (effective ? amountOf(effective, metric, project(totals[metric], elapsed, length)) : 0n),
    0n,
  );
  const bytes = await storedBytes(tx, orgId);
  return {
    period_start: shortInstant(start),
    period_end: shortInstant(end),
    line_items: lines,
    total_cents: total,
    projected_spend_cents: toNumber(projected),
    currency: book?.currency ?? null,
    minor_unit_digits: book?.minorUnitDigits ?? null,
    daily: [...days].flatMap(([day, quantities]) =>
      METRICS.filter((metric) => quantities[metric] > 0n).map((metric) => ({
        date: `${day}T00:00:00Z`,
        metric: metric.replace(/_hour$/, ''),
        quantity: inUnits(metric, quantities[metric]),
      })),
    ),
    storage_gib: bytes === null ? null : bytes / GIB,
  };
}

/** Quantities of the metrics by UTC day, in order. Days without usage are left out. */
export async function totalsByDay(
  tx: Sql,
  orgId: string,
  window: Window,
  metrics: readonly Metric[] = METRICS,
): Promise<Map<string, Quantities>> {
  const hasCompute = metrics.some((metric) => COMPUTE_METRICS.includes(metric));
  const compute = hasCompute ? await computeDays(tx, orgId, window) : [];
  const storage = metrics.includes('storage_gib_hour') ? await storageDays(tx, orgId, window) : [];
  const parts = [
    ...compute,
    ...storage.map((each) => ({ day: each.day, used: { storage_gib_hour: BigInt(each.storage) } })),
  ];
  const days = new Map<string, Quantities>();
  for (const { day, used } of parts.toSorted((a, b) => a.day.localeCompare(b.day))) {
    days.set(day, sumOf([days.get(day) ?? {}, used]));
  }
  return days;
}

export function presentSummary(summary: UsageSummary, format: Format): string {
  if (format === 'json') return JSON.stringify(summary);
  const currency = summary.currency ?? '';
  const { period_start, period_end, line_items } = summary;
  return csvLines([
    ['period_start', 'period_end', 'name', 'quantity', 'unit', 'amount_cents', 'currency'],
    ...line_items.map(({ name, quantity, unit, amount_cents }) => [
      period_start,
      period_end,
      name,
      quantity,
      unit,
      amount_cents,
      currency,
    ]),
  ]);
}

/** The included hours of quotas override those of the price book. */
export async function withQuotas(tx: Sql, orgId: string, book: PriceBook): Promise<PriceBook> {
  const hours = await includedHours(tx, orgId);
  const own = Object.entries(hours).filter(([, value]) => value !== null);
  const included = Object.fromEntries(
    own.map(([metric, value]) => [metric, { value: BigInt(value!), scale: 0 }]),
  );
  return { ...book, included: { ...book.included, ...included } };
}

/** A larger amount is a mistake in the price book. */
function toNumber(amount: bigint): number {
  if (amount > BigInt(Number.MAX_SAFE_INTEGER))
    throw new Error('an amount is out of the exact range of a number');
  return Number(amount);
}
