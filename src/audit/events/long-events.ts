import { WindowCounter } from '../../fairness/window-counter.js';
import { ApiError } from '../../http/errors.js';
import type { EventTarget } from '../../db/write-batch.js';

/**
 * The bytes of audit events that the requests of one organization may make, beyond the first bytes of each event.
 * Events stay, and a change of labels makes one of 32 KiB. Without the limit one organization wrote 1 MB of them a
 * second on a busy machine with two processors. A usual event has 500 bytes, and is never refused.
 */
export const LONG_EVENTS = { freeBytes: 4 * 1024, maxBytes: 128 * 1024 ** 2, windowSecs: 3_600 };

/** Every process counts separately. */
export class LongEvents {
  private readonly counts: WindowCounter;

  constructor({ maxBytes, windowSecs }: Pick<typeof LONG_EVENTS, 'maxBytes' | 'windowSecs'>) {
    this.counts = new WindowCounter(maxBytes, windowSecs * 1_000);
  }

  /**
   * Throws `rate_limited` before the commit of a transaction, if it has long events and the organization has used up
   * its bytes.
   */
  check(orgId: string, bytes: number): void {
    if (bytes === 0) return;
    const { isExceeded, secsLeft } = this.counts.look(orgId);
    if (!isExceeded) return;
    throw new ApiError(
      'rate_limited',
      `the requests of the organization make too many bytes of audit events: send shorter labels, or wait ${secsLeft} s`,
      null,
      { headers: { 'retry-after': String(secsLeft) } },
    );
  }

  /** After the commit: a transaction that is repeated, or that only finds an earlier answer, counts once or not. */
  add(orgId: string, bytes: number): void {
    if (bytes > 0) this.counts.add(orgId, bytes);
  }
}

/** The bytes of the long events that were written by these. */
export function longEventBytes(...targets: readonly Pick<EventTarget, 'longEventBytes'>[]): number {
  return targets.reduce((sum, { longEventBytes: bytes = 0 }) => sum + bytes, 0);
}

/** Adds an event to the bytes of its transaction. */
export function noteLength(target: EventTarget, length: number): void {
  if (length <= LONG_EVENTS.freeBytes) return;
  target.longEventBytes = (target.longEventBytes ?? 0) + length - LONG_EVENTS.freeBytes;
}
