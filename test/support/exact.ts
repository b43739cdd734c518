/** A quotient of whole numbers, for arithmetic without rounding. */
export interface Exact {
  n: bigint;
  d: bigint;
}

export const ZERO: Exact = { n: 0n, d: 1n };

export function exact(text: string): Exact {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) throw new Error(`not a decimal: ${text}`);
  const [, sign, whole, fraction = ''] = match;
  return { n: BigInt(`${sign}${whole}${fraction}`), d: 10n ** BigInt(fraction.length) };
}

export const plus = (a: Exact, b: Exact): Exact => ({ n: a.n * b.d + b.n * a.d, d: a.d * b.d });
export const minus = (a: Exact, b: Exact): Exact => plus(a, { n: -b.n, d: b.d });
export const times = (a: Exact, b: Exact): Exact => ({ n: a.n * b.n, d: a.d * b.d });
export const isEqual = (a: Exact, b: Exact) => a.n * b.d === b.n * a.d;
export const isLess = (a: Exact, b: Exact) => a.n * b.d < b.n * a.d;
