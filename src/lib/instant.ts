/**
 * A point in time: RFC 3339 text in UTC with six fractional digits (`2026-11-21T10:07:00.123456Z`), so that text order
 * is time order. A Date has only milliseconds.
 */
export type Instant = string;

const PATTERN =
  /^(?!0000)(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,18}))?(?:([Zz])|([+-])(\d{2}):(\d{2}))$/;

/** The most frequent form, which needs no arithmetic: in UTC, and on a day that every month has. */
const PLAIN =
  /^(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{1,6}))?Z$/;

const MICROS_PER_SECOND = 1_000_000n;
const MICROS_PER_DAY = 86_400n * MICROS_PER_SECOND;
/** RFC 3339 has the years 0001 to 9999; PostgreSQL needs another notation outside them. */
const EARLIEST = BigInt(Date.parse('0001-01-01T00:00:00Z')) * 1000n;
export const LAST_INSTANT: Instant = '9999-12-31T23:59:59.999999Z';
const LATEST = BigInt(Date.parse('9999-12-31T23:59:59.999Z')) * 1000n + 999n;

/**
 * Reads an RFC 3339 date-time with an offset; undefined for any other text. `round` applies to digits below the
 * microsecond: 'down' is right for an inclusive upper bound, 'up' for a lower one. A leap second is read as the next
 * second, as in PostgreSQL.
 */
export function parseInstant(text: string, round: 'down' | 'up' = 'down'): Instant | undefined {
  const plain = PLAIN.exec(text);
  if (plain) return `${text.slice(0, 19)}.${(plain[1] ?? '').padEnd(6, '0')}Z`;
  const match = PATTERN.exec(text);
  if (!match) return undefined;
  const [, year, month, day, hour, minute, second, fraction = '', , sign, offsetHours, offsetMinutes] = match;
  const isLeap = second === '60';
  if (Number(hour) > 23 || Number(minute) > 59 || (Number(second) > 59 && !isLeap)) return undefined;
  if (Number(offsetHours ?? 0) > 23 || Number(offsetMinutes ?? 0) > 59) return undefined;
  const date = new Date(`${year}-${month}-${day}T${hour}:${minute}:${isLeap ? '59' : second}Z`);
  // Date turns 30 February into 2 March.
  if (Number.isNaN(date.getTime()) || date.getUTCDate() !== Number(day)) return undefined;

  let micros = BigInt(date.getTime()) * 1000n;
  if (sign) {
    const shift = (BigInt(offsetHours!) * 60n + BigInt(offsetMinutes!)) * 60n * MICROS_PER_SECOND;
    micros += sign === '+' ? -shift : shift;
  }
  if (isLeap) {
    micros += MICROS_PER_SECOND;
    if (micros % MICROS_PER_DAY !== 0n) return undefined;
  }
  micros += BigInt(fraction.padEnd(6, '0').slice(0, 6));
  if (round === 'up' && /[1-9]/.test(fraction.slice(6))) micros += 1n;
  if (micros < EARLIEST || micros > LATEST) return undefined;
  return instantFromMicros(micros);
}

/** Reads a bare UTC date (`2026-11-21`) as its first instant. */
export function parseDate(text: string): Instant | undefined {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? parseInstant(`${text}T00:00:00Z`) : undefined;
}

/** `micros`: microseconds since 1970-01-01T00:00:00Z. */
export function instantFromMicros(micros: bigint): Instant {
  let millis = micros / 1000n;
  let rest = micros % 1000n;
  if (rest < 0n) {
    millis -= 1n;
    rest += 1000n;
  }
  return `${new Date(Number(millis)).toISOString().slice(0, -1)}${rest.toString().padStart(3, '0')}Z`;
}

export function microsOf(instant: Instant): bigint {
  return BigInt(Date.parse(`${instant.slice(0, 23)}Z`)) * 1000n + BigInt(instant.slice(23, 26));
}

/** Successive readings strictly increase, unless the system clock is set back by more than a second. */
export const now = makeClock();

function makeClock(): () => Instant {
  // In microseconds, which a number holds exactly until the year 2255.
  let lastReading = 0;
  // Most readings are of the same second, and formatting a date takes ten times as long as the rest.
  let second = Number.NaN;
  let secondText = '';
  return () => {
    const wall = Date.now();
    const fine = performance.timeOrigin + performance.now();
    // The fine clock ignores corrections of the system clock. After one, the system clock is right.
    let reading = Math.round((Math.abs(fine - wall) < 2 ? fine : wall) * 1000);
    if (reading <= lastReading && lastReading - reading < 1_000_000) reading = lastReading + 1;
    lastReading = reading;
    const micros = reading % 1_000_000;
    const whole = (reading - micros) / 1_000_000;
    if (whole !== second) {
      second = whole;
      secondText = new Date(whole * 1_000).toISOString().slice(0, 20);
    }
    return `${secondText}${String(micros).padStart(6, '0')}Z`;
  };
}

export function startOfMonth(instant: Instant): Instant {
  return `${instant.slice(0, 7)}-01T00:00:00.000000Z`;
}

/** `month`: the start of a UTC month. The result is not before the year 1. */
export function monthsBefore(month: Instant, months: number): Instant {
  const count = Math.max(Number(month.slice(0, 4)) * 12 + Number(month.slice(5, 7)) - 1 - months, 12);
  const [year, rest] = [Math.floor(count / 12), count % 12];
  return `${String(year).padStart(4, '0')}-${String(rest + 1).padStart(2, '0')}-01T00:00:00.000000Z`;
}

export function monthAfter(month: Instant): Instant {
  return monthsBefore(month, -1);
}

export function addMillis(instant: Instant, millis: number): Instant {
  return instantFromMicros(microsOf(instant) + BigInt(Math.round(millis)) * 1000n);
}

/** The form of responses: the shortest exact one of no fraction, milliseconds or microseconds. */
export function shortInstant(instant: Instant): string {
  if (instant.endsWith('.000000Z')) return `${instant.slice(0, 19)}Z`;
  if (instant.endsWith('000Z')) return `${instant.slice(0, 23)}Z`;
  return instant;
}

/** Reads PostgreSQL's text of a timestamptz (`2026-11-21 10:07:00.5+00`). Throws if the session is not in UTC. */
export function instantFromPostgres(text: string): Instant {
  const match = /^(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?\+00$/.exec(text);
  if (!match) throw new Error(`not a UTC timestamp of years 1 to 9999: ${text}`);
  return `${match[1]}T${match[2]}.${(match[3] ?? '').padEnd(6, '0')}Z`;
}

/** PostgreSQL's text in the form of `shortInstant`. PostgreSQL leaves out trailing zeros. */
export function shortFromPostgres(text: string): string {
  const end = text.length - '+00'.length;
  const digits = end - '2026-11-21 10:07:00.'.length;
  const isOne = text.endsWith('+00') && text[10] === ' ' && (digits === -1 || (digits >= 1 && digits <= 6));
  if (!isOne) {
    throw new Error(`not a UTC timestamp of years 1 to 9999: ${text}`);
  }
  const zeros = digits < 0 ? '' : ZEROS[digits % 3]!;
  return `${text.slice(0, 10)}T${text.slice(11, end)}${zeros}Z`;
}

/** The zeros that fill the digits up to a multiple of three. */
const ZEROS = ['', '00', '0'] as const;
