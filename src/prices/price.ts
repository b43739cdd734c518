export const METRICS = ['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour', 'storage_gib_hour'] as const;
export type Metric = (typeof METRICS)[number];
export const COMPUTE_METRICS: readonly Metric[] = ['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour'];

export interface Decimal {
  value: bigint;
  scale: number;
}

/** Reads text such as `0.0504`. The caller has checked its form. */
export function readDecimal(text: string): Decimal {
  const [whole = '', fraction = ''] = text.split('.');
  return { value: BigInt(whole + fraction), scale: fraction.length };
}

/** Without an exponent and without zeros at the end. */
export function decimalText({ value, scale }: Decimal): string {
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, '0');
  const text = `${digits.slice(0, digits.length - scale)}.${digits.slice(digits.length - scale)}`;
  return `${value < 0n ? '-' : ''}${text.replace(/[.]?0*$/, '')}`;
}

export interface PriceBook {
  /** ISO 4217. */
  currency: string;
  /** 2 for a currency with cents. */
  minorUnitDigits: number;
  /** In major units of the currency, for one unit of the metric. */
  prices: Record<Metric, Decimal>;
  /** Free units of the metric in each month. */
  included: Record<Metric, Decimal>;
}

/** In integers: microseconds times vCPUs, or times MiB. */
export type Quantities = Record<Metric, bigint>;

export function sumOf(parts: readonly Partial<Quantities>[]): Quantities {
  const sum = { vcpu_hour: 0n, memory_gib_hour: 0n, disk_gib_hour: 0n, storage_gib_hour: 0n };
  for (const part of parts) for (const metric of METRICS) sum[metric] += part[metric] ?? 0n;
  return sum;
}

const HOUR_MICROS = 3_600_000_000n;

export const UNITS: Record<Metric, bigint> = {
  vcpu_hour: HOUR_MICROS,
  memory_gib_hour: HOUR_MICROS * 1024n,
  disk_gib_hour: HOUR_MICROS * 1024n,
  storage_gib_hour: HOUR_MICROS * 1024n,
};

/** The decimal places of a priced quantity. */
export const QUANTITY_SCALE = 12;

/**
 * The quantity in units of the metric, rounded to `QUANTITY_SCALE` decimal places. The cost of a day is this times the
 * price.
 */
export function pricedQuantity(metric: Metric, quantity: bigint): Decimal {
  const value = halfUp(quantity * 10n ** BigInt(QUANTITY_SCALE), UNITS[metric]);
  return { value, scale: QUANTITY_SCALE };
}

/** For display: the nearest double of the quotient, to twelve decimal places. */
export function inUnits(metric: Metric, quantity: bigint): number {
  return Number(decimalText(pricedQuantity(metric, quantity)));
}

/** The cost of a month in minor units of the currency. Exact until it is rounded once, half up. */
export function amountOf(book: PriceBook, metric: Metric, quantity: bigint): bigint {
  const { value: included, scale: includedScale } = book.included[metric];
  const { value: price, scale } = book.prices[metric];
  // With one denominator: (quantity/unit - included/10^includedScale) * price/10^scale.
  const shift = 10n ** BigInt(includedScale);
  const charged = quantity * shift - included * UNITS[metric];
  if (charged <= 0n) return 0n;
  const minor = 10n ** BigInt(book.minorUnitDigits);
  return halfUp(charged * price * minor, UNITS[metric] * shift * 10n ** BigInt(scale));
}

/** Extrapolates a quantity linearly to the end of the period. */
export function project(quantity: bigint, elapsed: bigint, length: bigint): bigint {
  return elapsed <= 0n || elapsed >= length ? quantity : halfUp(quantity * length, elapsed);
}

/** With a fixed number of decimal digits, rounded half up. The amount is not negative. */
export function roundedText({ value, scale }: Decimal, digits: number): string {
  const minor = halfUp(value * 10n ** BigInt(digits), 10n ** BigInt(scale)).toString();
  if (digits === 0) return minor;
  const text = minor.padStart(digits + 1, '0');
  return `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** Rounds a quotient of numbers that are not negative. */
export function halfUp(numerator: bigint, denominator: bigint): bigint {
  return (numerator * 2n + denominator) / (denominator * 2n);
}
