interface Options {
  /** The part of the time for the work of a key. */
  share: number;
  aheadMs: number;
}

/** Spreads the work of each key over time (GCRA). Several callers of a key get successive times. */
export class Pace {
  private readonly paidUntil = new Map<string, number>();

  constructor(private readonly options: Options) {}

  get keys(): number {
    return this.paidUntil.size;
  }

  /** Charges work that took `millis`. Returns how long the caller must wait before more, in milliseconds. */
  charge(key: string, millis: number, now = performance.now()): number {
    const { share, aheadMs } = this.options;
    const until = Math.max(now, this.paidUntil.get(key) ?? 0) + millis / share;
    // In the order of the latest charges.
    this.paidUntil.delete(key);
    this.paidUntil.set(key, until);
    for (const [other, end] of this.paidUntil) {
      if (end > now) break;
      this.paidUntil.delete(other);
    }
    return Math.max(0, until - now - aheadMs);
  }
}
