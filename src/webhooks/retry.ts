/** The longest delay between two attempts of one delivery, in milliseconds. */
const LONGEST_RETRY_MS = 4 * 60 * 60 * 1000;

/**
 * The delay before the next attempt, in milliseconds: 5 s, 15 s, 45 s and so on, up to four hours, with 20 % jitter. A
 * day has about thirteen attempts. `attempts`: made so far.
 */
export function retryDelay(attempts: number, firstMs: number, random = Math.random()): number {
  const delay = Math.min(firstMs * 3 ** Math.max(attempts - 1, 0), LONGEST_RETRY_MS);
  return delay * (0.8 + 0.4 * random);
}

/**
 * Reads `Retry-After` as milliseconds, at most the longest delay; 0 if it is absent. `now`: in milliseconds since 1970.
 */
export function readRetryAfter(text: string | undefined, now: number): number {
  if (text === undefined) return 0;
  const delay = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Math.min(Math.max(delay || 0, 0), LONGEST_RETRY_MS);
}
