/** What is metered, by the word in the price book. */
export const METRICS = ['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour', 'storage_gib_hour'] as const;
export type Metric = (typeof METRICS)[number];

/** A decimal without loss: `value / 10^scale`. */
export interface Decimal {
  value: bigint;
  scale: number;
}

export interface PriceBook {
  /** ISO 4217. */
  currency: string;
  /** Of the currency: 2 for cents. */
  minorUnitDigits: number;
  /** In the currency's major unit, for one unit of the metric. */
  prices: Record<Metric, Decimal>;
  /** In units of the metric, in a month, before anything is charged. */
  included: Record<Metric, Decimal>;
}

/** Quantities in integers, as they are metered: microseconds times vCPUs, or times MiB. */
export type Quantities = Record<Metric, bigint>;

export function sumOf(parts: readonly Partial<Quantities>[]): Quantities {
  const sum = { vcpu_hour: 0n, memory_gib_hour: 0n, disk_gib_hour: 0n, storage_gib_hour: 0n };
  for (const part of parts) for (const metric of METRICS) sum[metric] += part[metric] ?? 0n;
  return sum;
}

const HOUR_MICROS = 3_600_000_000n;

/** How many of what is metered make one unit of the metric. */
const UNITS: Record<Metric, bigint> = {
  vcpu_hour: HOUR_MICROS,
  memory_gib_hour: HOUR_MICROS * 1024n,
  disk_gib_hour: HOUR_MICROS * 1024n,
  storage_gib_hour: HOUR_MICROS * 1024n,
};

/** For people and charts: the nearest double of the exact quotient, to twelve decimal places. */
export function inUnits(metric: Metric, quantity: bigint): number {
  const scaled = halfUp(quantity * 10n ** 12n, UNITS[metric]);
  const text = scaled.toString().padStart(13, '0');
  return Number(`${text.slice(0, -12)}.${text.slice(-12)}`);
}

/**
 * What a month's quantity costs, in minor units of the currency: what is more than is included, times the price. Exact until it is
 * rounded once, half a minor unit up.
 */
export function amountOf(book: PriceBook, metric: Metric, quantity: bigint): bigint {
  const { value: included, scale: includedScale } = book.included[metric];
  const { value: price, scale } = book.prices[metric];
  // Everything over one denominator: quantity/unit - included/10^includedScale, times price/10^scale.
  const shift = 10n ** BigInt(includedScale);
  const charged = quantity * shift - included * UNITS[metric];
  if (charged <= 0n) return 0n;
  const minor = 10n ** BigInt(book.minorUnitDigits);
  return halfUp(charged * price * minor, UNITS[metric] * shift * 10n ** BigInt(scale));
}

/** A quantity carried on to the end of the period at the pace so far; itself when there is nothing to carry on. */
export function project(quantity: bigint, elapsed: bigint, length: bigint): bigint {
  return elapsed <= 0n || elapsed >= length ? quantity : halfUp(quantity * length, elapsed);
}

/** Of numbers that are not negative. */
function halfUp(numerator: bigint, denominator: bigint): bigint {
  return (numerator * 2n + denominator) / (denominator * 2n);
}
