import { sleep } from '../lib/sleep.js';
import { Rate } from './rate.js';

interface Options {
  /** The part of the time for the work of an owner. */
  share: number;
  /** An owner rests when its work is paid for by more than this time from now. */
  aheadMs: number;
}

export const PACE = { share: 0.4, aheadMs: 50 };
/** An owner is active for this time after its latest request. */
export const ACTIVE_MS = 5_000;

/**
 * Spreads the work of each owner over time while another owner is active too. The others find the process idle
 * meanwhile. Several callers of an owner get successive times. docs/decisions/0020-fair-shares-of-a-process.md gives
 * the reasons.
 */
export class Pace {
  private readonly rate = new Rate();
  private latest: string | undefined;
  private sharedUntil = -Infinity;

  constructor(private readonly options: Options) {}

  get owners(): number {
    return this.rate.size;
  }

  see(owner: string, now = performance.now()): void {
    if (this.latest !== undefined && this.latest !== owner) this.sharedUntil = now + ACTIVE_MS;
    this.latest = owner;
  }

  isShared(now = performance.now()): boolean {
    return now < this.sharedUntil;
  }

  /** Charges work that took `millis`. Returns how long the caller must wait before more, in milliseconds. */
  charge(owner: string, millis: number, now = performance.now()): number {
    if (!this.isShared(now)) return 0;
    this.rate.charge(owner, millis / this.options.share, now, now - millis);
    return this.waitOf(owner, now);
  }

  /**
   * Charges work outside of requests to an account of its own: streams of an owner would keep its requests waiting
   * without end.
   */
  async rest(owner: string, millis: number, signal?: AbortSignal): Promise<void> {
    this.see(owner);
    const wait = this.charge(`${owner} outside of requests`, millis);
    if (wait > 0) await sleep(wait, signal);
  }

  waitOf(owner: string, now = performance.now()): number {
    if (!this.isShared(now)) return 0;
    return Math.max(0, this.rate.aheadOf(owner, now) - this.options.aheadMs);
  }
}
