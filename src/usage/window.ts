import { badParameter } from '../http/errors.js';
import { readDay } from '../http/parameters.js';
import { instantFromMicros, microsOf, startOfMonth, type Instant } from '../lib/instant.js';

/** `[since, until)`, and the moment up to which open runs count. */
export interface Window {
  since: Instant;
  until: Instant;
  now: Instant;
}

/** `[from, to)` */
export interface Stretch {
  from: Instant;
  to: Instant;
}

const LONGEST_DAYS = 366;
/** UTC days that a window can touch: one that begins in the middle of a day touches one more. */
export const LONGEST_WINDOW_DAYS = LONGEST_DAYS + 1;
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

/** A piece of a window: whole UTC days that are over, and what lies around them. Either may be missing. */
export interface Slab extends Stretch {
  whole: Stretch | undefined;
  /** All whole days of the window, of which `whole` is a part. */
  wholeOfWindow: Stretch | undefined;
  edges: Stretch[];
}

/**
 * What of the window is over by `now`, in pieces of at most `days` UTC days. Nothing lies after `now`, so a day counts as
 * whole only when it is over by the clock of the request, whatever other clocks say.
 */
export function slabsOf({ since, until, now }: Window, days: number): Slab[] {
  const begin = microsOf(since);
  const end = microsOf(until < now ? until : now);
  const first = startOfDay(begin + MICROS_PER_DAY - 1n);
  const last = startOfDay(end);
  const wholeOfWindow = stretch(first, last);
  const slabs: Slab[] = [];
  const length = BigInt(days) * MICROS_PER_DAY;
  for (let from = begin; from < end;) {
    const to = smaller(startOfDay(from) + length, end);
    const whole = stretch(larger(from, first), smaller(to, last));
    const edges = whole
      ? [stretch(from, larger(from, first)), stretch(smaller(to, last), to)]
      : [stretch(from, to)];
    slabs.push({
      from: instantFromMicros(from),
      to: instantFromMicros(to),
      whole,
      wholeOfWindow,
      edges: edges.filter((edge) => edge !== undefined),
    });
    from = to;
  }
  return slabs;
}

function stretch(from: bigint, to: bigint): Stretch | undefined {
  return from < to ? { from: instantFromMicros(from), to: instantFromMicros(to) } : undefined;
}

/** Also before 1970, where the remainder is negative. */
function startOfDay(micros: bigint): bigint {
  const rest = micros % MICROS_PER_DAY;
  return micros - (rest < 0n ? rest + MICROS_PER_DAY : rest);
}

const smaller = (a: bigint, b: bigint) => (a < b ? a : b);
const larger = (a: bigint, b: bigint) => (a > b ? a : b);
