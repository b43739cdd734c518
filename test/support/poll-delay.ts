const MOST_MS = 100;

/**
 * The delay before the next look at something that a test has waited for so long. A look costs the processors that
 * other tests use at the same time: a request and a query, or a look at every process of the machine. The wait becomes
 * a tenth longer at most.
 */
export function pollDelay(waitedMs: number, leastMs: number): number {
  return Math.min(MOST_MS, Math.max(leastMs, waitedMs / 10));
}
