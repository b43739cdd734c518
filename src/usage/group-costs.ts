import type { Transaction } from '../db/transaction.js';
import { sumOf, type Decimal, type Metric, type PriceBook, type Quantities } from '../prices/price.js';
import { Allowance } from './allowance.js';
import { withQuotas } from './summary.js';
import type { Window } from './window.js';

/**
 * The costs of groups of usage. Each is the cost of the day with the group, minus the cost without it. So the rounding
 * errors of groups do not add up. The costs of a day's groups are the cost of their sum, to the last digit.
 */
export class GroupCosts {
  private day = '';
  private used = sumOf([]);
  private cost = 0n;

  constructor(
    private readonly allowance: Allowance,
    readonly book: PriceBook,
  ) {}

  /** `ownBook`: as the operator gave it. Included hours in the quotas of the organization replace those of the book. */
  static async read(
    tx: Transaction,
    orgId: string,
    window: Window,
    { ownBook, metrics }: { ownBook: PriceBook; metrics: readonly Metric[] },
  ): Promise<GroupCosts> {
    const book = await withQuotas(tx, orgId, ownBook);
    return new GroupCosts(await Allowance.read(tx, orgId, window, { book, metrics }), book);
  }

  /** In major units of the currency. The groups of a day come one after the other. */
  add(day: string, used: Partial<Quantities>): Decimal {
    if (day !== this.day) {
      this.day = day;
      this.used = sumOf([]);
      this.cost = 0n;
    }
    this.used = sumOf([this.used, used]);
    const { value, scale } = this.ofDay(day, this.used);
    const added = value - this.cost;
    this.cost = value;
    return { value: added, scale };
  }

  /** The cost of a part of the usage of a day, without regard to groups. */
  ofDay(day: string, used: Quantities): Decimal {
    return this.allowance.costOf(day, used);
  }
}
