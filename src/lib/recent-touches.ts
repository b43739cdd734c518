const MAX_KEPT = 10_000;

/** The latest time of each key, on the monotonic clock, in milliseconds. The oldest are forgotten. */
export class RecentTouches {
  private readonly times = new Map<string, number>();

  touch(key: string): void {
    // A map keeps the order of insertion.
    this.times.delete(key);
    this.times.set(key, performance.now());
    if (this.times.size > MAX_KEPT) this.times.delete(this.times.keys().next().value!);
  }

  at(key: string): number | undefined {
    return this.times.get(key);
  }
}
