/** The most owners that are counted. Beyond that the least recently counted are forgotten. */
const MAX_KEPT = 20_000;

export interface WindowCount {
  remaining: number;
  isExceeded: boolean;
  secsLeft: number;
}

interface Window {
  count: number;
  until: number;
}

/**
 * So many in a window of time, which the fields `RateLimit` and `RateLimit-Policy` of HTTP can say. The window of an
 * owner begins when it is first counted.
 */
export class WindowCounter {
  private readonly windows = new Map<string, Window>();
  private latest: { owner: string; window: Window } | undefined;

  constructor(
    private readonly limit: number,
    private readonly windowMs: number,
  ) {}

  /** Exceeded: the owner had used up its limit before, and the amount is not counted. */
  add(owner: string, amount: number): WindowCount {
    const now = performance.now();
    const window = this.windowOf(owner, now);
    this.makeLatest(owner, window);
    const isExceeded = window.count >= this.limit;
    if (!isExceeded) window.count += amount;
    return { ...this.countOf(window, now), isExceeded };
  }

  /** The latest owner is last in the map already: a change of the map for each of its requests costs more. */
  private makeLatest(owner: string, window: Window): void {
    if (this.latest?.owner === owner && this.latest.window === window) return;
    this.latest = { owner, window };
    if (this.windows.has(owner)) this.windows.delete(owner);
    else if (this.windows.size >= MAX_KEPT) this.windows.delete(this.windows.keys().next().value!);
    this.windows.set(owner, window);
  }

  /** Counts nothing. */
  look(owner: string): WindowCount {
    const now = performance.now();
    return this.countOf(this.windowOf(owner, now), now);
  }

  private windowOf(owner: string, now: number): Window {
    const known = this.windows.get(owner);
    return known && known.until > now ? known : { count: 0, until: now + this.windowMs };
  }

  private countOf({ count, until }: Window, now: number): WindowCount {
    return {
      remaining: Math.max(this.limit - count, 0),
      isExceeded: count >= this.limit,
      secsLeft: Math.max(Math.ceil((until - now) / 1000), 1),
    };
  }
}
