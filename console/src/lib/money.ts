import type { UsageSummary } from './api-types';

/** An amount in minor units, such as cents, in its currency. */
export function money(minor: number, currency: string, digits: number): string {
  return majorMoney(minor / 10 ** digits, currency, digits);
}

/** An amount of a report, in minor units. Without prices a report has no currency. */
export function amountOf(
  { currency, minor_unit_digits }: Pick<UsageSummary, 'currency' | 'minor_unit_digits'>,
  minor: number,
): string {
  return currency === null ? '–' : money(minor, currency, minor_unit_digits ?? 2);
}

/** An amount in major units, such as euros, with the sign of its currency. */
export function majorMoney(amount: number, currency: string, digits: number): string {
  const style = {
    style: 'currency',
    currency,
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  } as const;
  return new Intl.NumberFormat('en', style).format(withoutNoise(amount));
}

/** A sum of binary fractions has wrong last digits: 900.01 + 1350.015 is below 2250.025, and would be rounded down. */
export function withoutNoise(amount: number): number {
  return Number(amount.toPrecision(13));
}
