import { exact, isLess, minus, plus, times, ZERO, type Exact } from './exact.js';

const HOUR = 3_600_000_000n;
/** The parts of an hour's unit: a vCPU, and the MiB of a GiB of memory and of disk. */
const PARTS = [1n, 1024n, 1024n];

/** By UTC day: microseconds times vCPUs, MiB of memory and MiB of disk. */
export type UsedByDay = ReadonlyMap<string, readonly bigint[]>;

/** For vCPUs, memory and disk: prices in major units of the currency, and hours that are free in each month. */
export interface Prices {
  prices: readonly string[];
  included: readonly string[];
}

/**
 * An oracle: the cost by UTC day of a part of the usage, as quotients of whole numbers. Included hours are used up day
 * by day. On the day on which they end, all usage has the same share of them.
 */
export function exactCosts(
  all: UsedByDay,
  part: UsedByDay,
  { prices, included }: Prices,
): Map<string, Exact> {
  const costs = new Map<string, Exact>();
  PARTS.forEach((size, index) => {
    const unit = size * HOUR;
    const free = times(exact(included[index]!), { n: unit, d: 1n });
    let month = '';
    let before = 0n;
    for (const [day, used] of [...all].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      if (day.slice(0, 7) !== month) before = 0n;
      month = day.slice(0, 7);
      const quantity = used[index]!;
      before += quantity;
      const beyond = minus({ n: before, d: 1n }, free);
      const whole = { n: quantity, d: 1n };
      const charged = isLess(beyond, ZERO) ? ZERO : isLess(beyond, whole) ? beyond : whole;
      const own = part.get(day)?.[index] ?? 0n;
      if (own === 0n) continue;
      const share = times(charged, { n: own, d: quantity * unit });
      costs.set(day, plus(costs.get(day) ?? ZERO, times(share, exact(prices[index]!))));
    }
  });
  return costs;
}
