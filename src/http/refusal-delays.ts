import { Rate } from '../fairness/rate.js';

/**
 * A client beyond a limit waits at least so long for each refusal, so that each of its connections makes few requests.
 */
export const REFUSAL_DELAY_MS = 1_000;
/** The time between two such refusals of one organization or address, so that many connections get few too. */
export const REFUSAL_GAP_MS = 5;
export const MOST_DELAY_MS = 20_000;

export class RefusalDelays {
  private readonly rate = new Rate();

  constructor(private readonly gapMs = REFUSAL_GAP_MS) {}

  /** Returns how long the next refusal of the owner waits, in milliseconds. Undefined: too many wait already. */
  next(owner: string, now = performance.now()): number | undefined {
    const delay = REFUSAL_DELAY_MS + this.rate.aheadOf(owner, now);
    if (delay > MOST_DELAY_MS) return undefined;
    this.rate.charge(owner, this.gapMs, now);
    return delay;
  }
}
