import { badParameter } from '../http/errors.js';
import { readDay } from '../http/parameters.js';
import { instantFromMicros, microsOf, startOfMonth, type Instant } from '../lib/instant.js';

/** `[since, until)`. Open runs count until `now`. */
export interface Window {
  since: Instant;
  until: Instant;
  now: Instant;
}

export interface TimeRange {
  from: Instant;
  to: Instant;
}

const LONGEST_DAYS = 366;
/** The most UTC days that a window can touch. */
export const LONGEST_WINDOW_DAYS = LONGEST_DAYS + 1;
const MICROS_PER_DAY = 86_400_000_000n;

/** Default: from the start of the current UTC month until now. */
export function readWindow({ since, until }: { since?: string; until?: string }, now: Instant): Window {
  const window = {
    since: readDay('since', since) ?? startOfMonth(now),
    until: readDay('until', until) ?? now,
    now,
  };
  if (window.since >= window.until) {
    // Name the given parameter; the other one is a default.
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

/** A part of a window: past whole UTC days, and the cut days around them. Either may be missing. */
export interface WindowPart extends TimeRange {
  whole: TimeRange | undefined;
  wholeOfWindow: TimeRange | undefined;
  edges: TimeRange[];
}

/**
 * Splits the part of the window before `now` into parts of at most `days` UTC days. A day is whole if it is over by
 * `now`.
 */
export function splitWindow({ since, until, now }: Window, days: number): WindowPart[] {
  const begin = microsOf(since);
  const end = microsOf(until < now ? until : now);
  const first = startOfDay(begin + MICROS_PER_DAY - 1n);
  const last = startOfDay(end);
  const wholeOfWindow = nonEmptyRange(first, last);
  const parts: WindowPart[] = [];
  const length = BigInt(days) * MICROS_PER_DAY;
  for (let from = begin; from < end;) {
    const to = smaller(startOfDay(from) + length, end);
    const whole = nonEmptyRange(larger(from, first), smaller(to, last));
    const edges = whole
      ? [nonEmptyRange(from, larger(from, first)), nonEmptyRange(smaller(to, last), to)]
      : [nonEmptyRange(from, to)];
    parts.push({
      from: instantFromMicros(from),
      to: instantFromMicros(to),
      whole,
      wholeOfWindow,
      edges: edges.filter((edge) => edge !== undefined),
    });
    from = to;
  }
  return parts;
}

function nonEmptyRange(from: bigint, to: bigint): TimeRange | undefined {
  return from < to ? { from: instantFromMicros(from), to: instantFromMicros(to) } : undefined;
}

/** The remainder is negative before 1970. */
function startOfDay(micros: bigint): bigint {
  const rest = micros % MICROS_PER_DAY;
  return micros - (rest < 0n ? rest + MICROS_PER_DAY : rest);
}

const smaller = (a: bigint, b: bigint) => (a < b ? a : b);
const larger = (a: bigint, b: bigint) => (a > b ? a : b);
