import type { Sql } from '../db/pool.js';
import { monthAfter, startOfMonth, type Instant } from '../lib/instant.js';
import {
  amountOf,
  halfUp,
  METRICS,
  pricedQuantity,
  QUANTITY_SCALE,
  sumOf,
  UNITS,
  type Decimal,
  type Metric,
  type PriceBook,
  type Quantities,
} from '../prices/price.js';
import { totalsByDay } from './summary.js';
import type { Window } from './window.js';

/** The charged part of a quantity, as a quotient from 0 to 1. */
interface Share {
  charged: bigint;
  used: bigint;
}

/**
 * Included hours of a month are used up day by day, in order. On the day on which they end, each resource gets the same
 * share of them. So a past day never changes, and neither a filter nor the window changes a row.
 */
export class Allowance {
  private readonly shares = new Map<string, Record<Metric, Share>>();
  private readonly months = new Map<string, Quantities>();
  /** All usage of the organization by UTC day, of the read metrics. */
  readonly days = new Map<string, Quantities>();

  private constructor(private readonly book: PriceBook) {}

  /** Reads the totals of the metrics in every month that the window touches. */
  static async read(
    sql: Sql,
    orgId: string,
    { since, until, now }: Window,
    { book, metrics }: { book: PriceBook; metrics: readonly Metric[] },
  ): Promise<Allowance> {
    const allowance = new Allowance(book);
    const end = until < now ? until : now;
    for (let start = startOfMonth(since); start < end; start = monthAfter(start)) {
      const month = { since: start, until: monthAfter(start), now };
      const days = await totalsByDay(sql, orgId, month, metrics);
      allowance.addMonth(start, days);
    }
    return allowance;
  }

  private addMonth(start: Instant, days: ReadonlyMap<string, Quantities>): void {
    let before = sumOf([]);
    for (const [day, used] of days) {
      this.days.set(day, used);
      const after = sumOf([before, used]);
      const shareOf = (metric: Metric) => this.shareOf(metric, used[metric], after[metric]);
      this.shares.set(
        day,
        Object.fromEntries(METRICS.map((metric) => [metric, shareOf(metric)])) as Record<Metric, Share>,
      );
      before = after;
    }
    this.months.set(start, before);
  }

  /** `after`: the quantity of the month up to the end of the day. */
  private shareOf(metric: Metric, used: bigint, after: bigint): Share {
    const { value, scale } = this.book.included[metric];
    const shift = 10n ** BigInt(scale);
    const beyond = after * shift - value * UNITS[metric];
    const charged = beyond < 0n ? 0n : beyond < used * shift ? beyond : used * shift;
    return { charged, used: used * shift };
  }

  /** The charged part of the quantity that one resource used on a day, in whole units of `Quantities`. */
  chargedOf(day: string, metric: Metric, quantity: bigint): bigint {
    const share = this.shares.get(day)?.[metric];
    if (!share || share.used === 0n) return 0n;
    return halfUp(quantity * share.charged, share.used);
  }

  /** The cost of quantities of one day, in major units. The scale is the same for all. */
  costOf(day: string, used: Quantities): Decimal {
    const { prices } = this.book;
    const scale = Math.max(...METRICS.map((metric) => prices[metric].scale));
    const value = METRICS.reduce((sum, metric) => {
      const priced = pricedQuantity(metric, this.chargedOf(day, metric, used[metric]));
      return sum + priced.value * prices[metric].value * 10n ** BigInt(scale - prices[metric].scale);
    }, 0n);
    return { value, scale: QUANTITY_SCALE + scale };
  }

  /** The amount of the monthly summary, in minor units. */
  amountOf(month: Instant, metric: Metric): bigint {
    return amountOf(this.book, metric, this.months.get(month)?.[metric] ?? 0n);
  }
}
