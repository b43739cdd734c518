import { badParameter } from '../http/errors.js';
import { readDay } from '../http/parameters.js';
import { microsOf, startOfMonth, type Instant } from '../lib/instant.js';

/** `[since, until)`, and the moment up to which open runs count. */
export interface Window {
  since: Instant;
  until: Instant;
  now: Instant;
}

const LONGEST_DAYS = 366;
const MICROS_PER_DAY = 86_400_000_000n;

/** Reads the time range of a usage request: from the start of the current UTC month until now unless said. */
export function readWindow({ since, until }: { since?: string; until?: string }, now: Instant): Window {
  const window = {
    since: readDay('since', since) ?? startOfMonth(now),
    until: readDay('until', until) ?? now,
    now,
  };
  if (window.since >= window.until) {
    // Name the one that was given: the other is a default.
    throw badParameter(
      since === undefined ? 'until' : 'since',
      `since (${window.since}) must be before until (${window.until})`,
    );
  }
  if (microsOf(window.until) - microsOf(window.since) > BigInt(LONGEST_DAYS) * MICROS_PER_DAY) {
    throw badParameter(
      since === undefined ? 'until' : 'since',
      `the range from since to until is at most ${LONGEST_DAYS} days`,
    );
  }
  return window;
}
