/** The longest pause between two attempts of one delivery, in milliseconds. */
const LONGEST_RETRY_MS = 4 * 60 * 60 * 1000;

/**
 * The pause before the next attempt, in milliseconds: 5 s, 15 s, 45 s and so on, up to four hours, some thirteen attempts in a
 * day. A fifth more or less, by chance, so that what failed at once does not come back at once. `attempts`: made so far.
 */
export function retryDelay(attempts: number, firstMs: number, random = Math.random()): number {
  const pause = Math.min(firstMs * 3 ** Math.max(attempts - 1, 0), LONGEST_RETRY_MS);
  return pause * (0.8 + 0.4 * random);
}

/**
 * How long a receiver asks for a rest by `Retry-After`, in milliseconds, at most as long as the longest pause; 0 when it does
 * not. `now`: in milliseconds since 1970.
 */
export function readRetryAfter(text: string | undefined, now: number): number {
  if (text === undefined) return 0;
  const pause = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now;
  return Math.min(Math.max(pause || 0, 0), LONGEST_RETRY_MS);
}
