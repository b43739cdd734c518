import { sleep } from '../lib/sleep.js';

interface Options {
  /** The part of the time for the work of a key. */
  share: number;
  /** A key rests when its work is paid for by more than this time from now. */
  aheadMs: number;
}

export const PACE = { share: 0.4, aheadMs: 50 };
/** A key is active for this time after its latest request. */
export const ACTIVE_MS = 5_000;

/**
 * Spreads the work of each key over time while another key is active too (GCRA). The others find the process idle meanwhile. Several
 * callers of a key get successive times. docs/decisions/0020-fair-shares-of-a-process.md gives the reasons.
 */
export class Pace {
  private readonly paidUntil = new Map<string, number>();
  private latest: string | undefined;
  private sharedUntil = -Infinity;

  constructor(private readonly options: Options) {}

  get keys(): number {
    return this.paidUntil.size;
  }

  see(key: string, now = performance.now()): void {
    if (this.latest !== undefined && this.latest !== key) this.sharedUntil = now + ACTIVE_MS;
    this.latest = key;
  }

  isShared(now = performance.now()): boolean {
    return now < this.sharedUntil;
  }

  /** Charges work that took `millis`. Returns how long the caller must wait before more, in milliseconds. */
  charge(key: string, millis: number, now = performance.now()): number {
    if (!this.isShared(now)) return 0;
    const until = Math.max(now - millis, this.paidUntil.get(key) ?? 0) + millis / this.options.share;
    // In the order of the latest charges.
    this.paidUntil.delete(key);
    this.paidUntil.set(key, until);
    for (const [other, end] of this.paidUntil) {
      if (end > now) break;
      this.paidUntil.delete(other);
    }
    return this.waitOf(key, now);
  }

  /** Charges work outside of requests to an account of its own: streams of a key would keep its requests waiting without end. */
  async rest(key: string, millis: number, signal?: AbortSignal): Promise<void> {
    this.see(key);
    const wait = this.charge(`${key} outside of requests`, millis);
    if (wait > 0) await sleep(wait, signal);
  }

  waitOf(key: string, now = performance.now()): number {
    if (!this.isShared(now)) return 0;
    return Math.max(0, (this.paidUntil.get(key) ?? 0) - now - this.options.aheadMs);
  }
}
