import { decimalText, type Decimal } from '../prices/price.js';

/** An exact quotient that is not negative. */
export interface Ratio {
  numerator: bigint;
  denominator: bigint;
}

/** The places after the point of amounts that are no exact decimal numbers. */
export const PLACES = 12;

/** Whether the use is at least this share of the limit, in per cent. Exact: there is no rounding. */
export function reaches({ numerator, denominator }: Ratio, limit: Decimal, percent: number): boolean {
  return numerator * 10n ** BigInt(limit.scale) * 100n >= BigInt(percent) * limit.value * denominator;
}

/** In per cent, cut to two decimal places, so that 100 is not shown before the limit is reached. */
export function percentOf({ numerator, denominator }: Ratio, limit: Decimal): number {
  const hundredths = (numerator * 10n ** BigInt(limit.scale) * 10_000n) / (limit.value * denominator);
  return Number(hundredths) / 100;
}

/** Exact for a decimal number, else cut to `PLACES`, so that no text shows the limit before it is reached. */
export function ratioText({ numerator, denominator }: Ratio): string {
  const scale = isPowerOfTen(denominator) ? denominator.toString().length - 1 : PLACES;
  return decimalText({ value: (numerator * 10n ** BigInt(scale)) / denominator, scale });
}

function isPowerOfTen(value: bigint): boolean {
  return /^10*$/.test(value.toString());
}
