const UNITS: Record<string, number> = {
  '': 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: 1024 ** 3,
  Ti: 1024 ** 4,
  Pi: 1024 ** 5,
  Ei: 1024 ** 6,
};

/** An amount of a resource, such as `1500m`, `2` or `3900Mi`. */
export function quantity(text: string | undefined): number {
  const [, digits, unit] = /^([\d.]+)([A-Za-z]*)$/.exec(text ?? '') ?? [];
  return Number(digits ?? 0) * (UNITS[unit ?? ''] ?? 0);
}
