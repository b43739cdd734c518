/** The most owners that are counted. Beyond that the least recently counted are forgotten. */
const MAX_KEPT = 20_000;

export interface WindowCount {
  remaining: number;
  isExceeded: boolean;
  secsLeft: number;
}

/**
 * So many in a window of time, which the fields `RateLimit` and `RateLimit-Policy` of HTTP can say. The window of an
 * owner begins when it is first counted.
 */
export class WindowCounter {
  private readonly windows = new Map<string, { count: number; until: number }>();

  constructor(
    private readonly limit: number,
    private readonly windowMs: number,
  ) {}

  /** Exceeded: the owner had used up its limit before. */
  add(owner: string, amount: number): WindowCount {
    const now = performance.now();
    const known = this.windows.get(owner);
    const window = known && known.until > now ? known : { count: 0, until: now + this.windowMs };
    if (known) this.windows.delete(owner);
    else if (this.windows.size >= MAX_KEPT) this.windows.delete(this.windows.keys().next().value!);
    this.windows.set(owner, window);
    const isExceeded = window.count >= this.limit;
    if (!isExceeded) window.count += amount;
    return {
      remaining: Math.max(this.limit - window.count, 0),
      isExceeded,
      secsLeft: Math.max(Math.ceil((window.until - now) / 1000), 1),
    };
  }
}
