/** An amount in minor units, such as cents, in its currency. */
export function money(minor: number, currency: string, digits: number): string {
  const style = {
    style: 'currency',
    currency,
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  } as const;
  return new Intl.NumberFormat('en', style).format(minor / 10 ** digits);
}
