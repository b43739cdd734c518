/** A client beyond a limit waits at least so long for each refusal, so that each of its connections makes few requests. */
export const REFUSAL_DELAY_MS = 1_000;
/** The time between two such refusals of one organization or address, so that many connections get few too. */
export const REFUSAL_GAP_MS = 5;
export const MOST_DELAY_MS = 20_000;

export class RefusalDelays {
  private readonly latest = new Map<string, number>();

  /** Returns how long the next refusal of the key waits, in milliseconds. Undefined: too many wait already. */
  next(key: string, now = performance.now()): number | undefined {
    const due = Math.max(now + REFUSAL_DELAY_MS, (this.latest.get(key) ?? 0) + REFUSAL_GAP_MS);
    if (due > now + MOST_DELAY_MS) return undefined;
    this.latest.delete(key);
    this.latest.set(key, due);
    // In the order of the latest refusals. The oldest one is mostly due first, so the loop ends at the first that is not yet due.
    for (const [other, at] of this.latest) {
      if (at > now) break;
      this.latest.delete(other);
    }
    return due - now;
  }
}
