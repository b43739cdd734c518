/**
 * The times until which the work of owners is paid for: a generic cell rate algorithm, GCRA. An owner that is charged
 * faster than time passes gets ahead. Unused time is not saved.
 */
export class Rate {
  /**
   * In the order of the latest charges. Owners at the front were charged the longest time ago, so they are mostly the
   * first that have nothing left. An owner that is far ahead keeps those behind it, at most until its own time is over.
   */
  private readonly paidUntil = new Map<string, number>();

  /** The owners that are ahead, and perhaps some that no longer are. */
  get size(): number {
    return this.paidUntil.size;
  }

  /** In milliseconds. */
  aheadOf(owner: string, now: number): number {
    return Math.max(0, (this.paidUntil.get(owner) ?? 0) - now);
  }

  /**
   * `from`: the begin of the work, which is paid for at the earliest from then on. Returns how far ahead the owner is
   * now.
   */
  charge(owner: string, millis: number, now: number, from = now): number {
    if (!(millis >= 0)) throw new Error('a charge is not negative');
    const until = Math.max(from, this.paidUntil.get(owner) ?? 0) + millis;
    this.paidUntil.delete(owner);
    this.paidUntil.set(owner, until);
    for (const [other, end] of this.paidUntil) {
      if (end > now) break;
      this.paidUntil.delete(other);
    }
    return Math.max(0, until - now);
  }
}
