import fc from 'fast-check';
import pg from 'pg';
import { describe, expect, inject, test } from 'vitest';
import { connectionConfig } from '../../src/db/pool.js';
import {
  addMillis,
  instantFromMicros,
  instantFromPostgres,
  shortFromPostgres,
  microsOf,
  now,
  parseDate,
  parseInstant,
  shortInstant,
} from '../../src/lib/instant.js';
import { withDatabase } from '../support/database.js';

describe('instants', () => {
  // The calendar by counting, without Date: days before each year and month, leap years by the rule of 1582.
  const isLeap = (year: number) => (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const monthLengths = (year: number) => [31, isLeap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
  const daysBeforeYear = (year: number) => {
    const past = year - 1;
    return past * 365 + Math.floor(past / 4) - Math.floor(past / 100) + Math.floor(past / 400);
  };
  const daysSinceEpoch = (year: number, month: number, day: number) => {
    const before = monthLengths(year).slice(0, month - 1);
    return (
      daysBeforeYear(year) + before.reduce((sum, days) => sum + days, 0) + day - 1 - daysBeforeYear(1970)
    );
  };
  const exists = (year: number, month: number, day: number) =>
    year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= monthLengths(year)[month - 1]!;
  const digits = (value: number | bigint, length: number) => String(value).padStart(length, '0');

  function write(micros: bigint): string {
    const seconds = micros >= 0n ? micros / 1_000_000n : -((-micros + 999_999n) / 1_000_000n);
    const fraction = micros - seconds * 1_000_000n;
    const days = seconds >= 0n ? seconds / 86_400n : -((-seconds + 86_399n) / 86_400n);
    const ofDay = Number(seconds - days * 86_400n);
    let year = 1970 + Math.trunc(Number(days) / 366);
    while (daysSinceEpoch(year + 1, 1, 1) <= Number(days)) year += 1;
    while (daysSinceEpoch(year, 1, 1) > Number(days)) year -= 1;
    let month = 1;
    while (month < 12 && daysSinceEpoch(year, month + 1, 1) <= Number(days)) month += 1;
    const day = Number(days) - daysSinceEpoch(year, month, 1) + 1;
    const clock = [Math.floor(ofDay / 3600), Math.floor(ofDay / 60) % 60, ofDay % 60];
    const date = [digits(year, 4), digits(month, 2), digits(day, 2)].join('-');
    return `${date}T${clock.map((part) => digits(part, 2)).join(':')}.${digits(fraction, 6)}Z`;
  }

  const EARLIEST = BigInt(daysSinceEpoch(1, 1, 1)) * 86_400_000_000n;
  const LATEST = BigInt(daysSinceEpoch(10_000, 1, 1)) * 86_400_000_000n - 1n;
  const anyMicros = fc.oneof(
    fc.bigInt({ min: EARLIEST, max: LATEST }),
    fc.bigInt({ min: -2_000_000n, max: 2_000_000n }),
    fc.constantFrom(EARLIEST, LATEST, 0n, -1n),
  );

  /** Parts of a possibly invalid date-time, and the expected value of their text. */
  const anyParts = fc.record({
    year: fc.oneof(fc.integer({ min: 0, max: 9999 }), fc.constantFrom(1, 1900, 1970, 2000, 2024, 2100, 9999)),
    month: fc.integer({ min: 0, max: 13 }),
    day: fc.integer({ min: 0, max: 32 }),
    hour: fc.integer({ min: 0, max: 24 }),
    minute: fc.integer({ min: 0, max: 60 }),
    second: fc.integer({ min: 0, max: 60 }),
    fraction: fc.option(fc.stringMatching(/^\d{1,18}$/), { nil: undefined }),
    offset: fc.option(
      fc.record({
        sign: fc.constantFrom('+', '-'),
        hours: fc.integer({ min: 0, max: 24 }),
        minutes: fc.integer({ min: 0, max: 60 }),
      }),
      { nil: undefined },
    ),
    round: fc.constantFrom('up' as const, 'down' as const),
    separator: fc.constantFrom('T', 't', ' '),
    zulu: fc.constantFrom('Z', 'z'),
  });
  type Parts = typeof anyParts extends fc.Arbitrary<infer T> ? T : never;

  function textOf({
    year,
    month,
    day,
    hour,
    minute,
    second,
    fraction,
    offset,
    separator,
    zulu,
  }: Parts): string {
    const date = [digits(year, 4), digits(month, 2), digits(day, 2)].join('-');
    const clock = [hour, minute, second].map((part) => digits(part, 2)).join(':');
    const zone = offset ? `${offset.sign}${digits(offset.hours, 2)}:${digits(offset.minutes, 2)}` : zulu;
    return `${date}${separator}${clock}${fraction === undefined ? '' : `.${fraction}`}${zone}`;
  }

  function microsOfParts({ year, month, day, hour, minute, second, fraction = '', offset, round }: Parts) {
    if (!exists(year, month, day) || hour > 23 || minute > 59 || second > 60) return undefined;
    if (offset && (offset.hours > 23 || offset.minutes > 59)) return undefined;
    const shift = offset ? (offset.sign === '+' ? -1 : 1) * (offset.hours * 60 + offset.minutes) * 60 : 0;
    const seconds = daysSinceEpoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second + shift;
    // A leap second is only at the end of a UTC day.
    if (second === 60 && seconds % 86_400 !== 0) return undefined;
    const scale = 10n ** 12n;
    const attos = BigInt(fraction.padEnd(18, '0'));
    const micros =
      BigInt(seconds) * 1_000_000n + (round === 'up' ? (attos + scale - 1n) / scale : attos / scale);
    return micros >= EARLIEST && micros <= LATEST ? micros : undefined;
  }

  test('are parsed from every valid date-time, and from nothing else', () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        const micros = microsOfParts(parts);
        expect(parseInstant(textOf(parts), parts.round)).toBe(
          micros === undefined ? undefined : write(micros),
        );
      }),
      { numRuns: 3000 },
    );
  });

  test('accept every day of every kind of year, and no other', () => {
    for (const year of [1, 4, 100, 400, 1900, 1970, 2000, 2023, 2024, 2100, 9999]) {
      for (let month = 0; month <= 13; month += 1) {
        for (let day = 0; day <= 32; day += 1) {
          const text = [digits(year, 4), digits(month, 2), digits(day, 2)].join('-');
          const expected = exists(year, month, day) ? `${text}T00:00:00.000000Z` : undefined;
          expect([text, parseDate(text)]).toEqual([text, expected]);
        }
      }
    }
  });

  test.each([
    '',
    '2026-11-21',
    '2026-11-21T10:07:00',
    '2026-11-21T10:07Z',
    '2026-11-21T10:07:00.Z',
    '2026-11-21T10:07:00,5Z',
    '2026-11-21T10:07:00+0100',
    '2026-11-21T10:07:00+01',
    '2026-11-21T10:07:00Z ',
    ' 2026-11-21T10:07:00Z',
    '2026-11-21T10:07:00Z\n',
    '2026-11-21T10:07:00.1234567890123456789Z',
    '+02026-11-21T10:07:00Z',
    '-0001-11-21T10:07:00Z',
    '0000-12-31T16:26:00-07:34',
    '26-11-21T10:07:00Z',
    '2026-1-21T10:07:00Z',
    '２０２６-11-21T10:07:00Z',
    '1795255620',
    'now',
  ])('are not parsed from %j', (text) => {
    expect(parseInstant(text)).toBeUndefined();
    if (text !== '2026-11-21') expect(parseDate(text)).toBeUndefined();
  });

  test('round to the microsecond in the given direction, also across a year', () => {
    expect(parseInstant('2026-12-31T23:59:59.9999991Z', 'down')).toBe('2026-12-31T23:59:59.999999Z');
    expect(parseInstant('2026-12-31T23:59:59.9999991Z', 'up')).toBe('2027-01-01T00:00:00.000000Z');
    expect(parseInstant('2026-12-31T23:59:59.9999990Z', 'up')).toBe('2026-12-31T23:59:59.999999Z');
    expect(parseInstant('1969-12-31T23:59:59.999999999Z', 'down')).toBe('1969-12-31T23:59:59.999999Z');
    expect(parseInstant('1969-12-31T23:59:59.999999999Z', 'up')).toBe('1970-01-01T00:00:00.000000Z');
  });

  test.each([
    ['2016-12-31T23:59:60Z', '2017-01-01T00:00:00.000000Z'],
    ['2016-12-31T23:59:60.123456789Z', '2017-01-01T00:00:00.123456Z'],
    ['1990-12-31T15:59:60-08:00', '1991-01-01T00:00:00.000000Z'],
    ['2017-01-01t05:29:60.5+05:30', '2017-01-01T00:00:00.500000Z'],
    ['2016-12-31T23:58:60Z', undefined],
    ['2016-12-31T22:59:60Z', undefined],
    ['2016-12-31T23:59:60+01:00', undefined],
    ['2016-12-31T23:59:61Z', undefined],
    ['9999-12-31T23:59:60Z', undefined],
  ])('parse the leap second %s as the next second, at the end of a UTC day only', (text, expected) => {
    expect(parseInstant(text)).toBe(expected);
  });

  test('map to microseconds and back, in the same order', () => {
    fc.assert(
      fc.property(anyMicros, anyMicros, (a, b) => {
        const instant = instantFromMicros(a);
        expect(instant).toBe(write(a));
        expect(microsOf(instant)).toBe(a);
        expect(parseInstant(instant)).toBe(instant);
        expect(instant < instantFromMicros(b)).toBe(a < b);
      }),
      { numRuns: 2000 },
    );
  });

  test('print in the shortest exact form', () => {
    fc.assert(
      fc.property(anyMicros, fc.constantFrom(1n, 1000n, 1_000_000n), (any, unit) => {
        const micros = (any / unit) * unit;
        const short = shortInstant(instantFromMicros(micros));
        expect(parseInstant(short)).toBe(instantFromMicros(micros));
        const length = micros % 1_000_000n === 0n ? 20 : micros % 1000n === 0n ? 24 : 27;
        expect(short).toHaveLength(length);
      }),
    );
  });

  test('shift by milliseconds', () => {
    fc.assert(
      fc.property(anyMicros, fc.integer(), (micros, millis) => {
        const moved = micros + BigInt(millis) * 1000n;
        fc.pre(moved >= EARLIEST && moved <= LATEST);
        expect(addMillis(instantFromMicros(micros), millis)).toBe(instantFromMicros(moved));
      }),
    );
  });

  test('from now() always increase, and follow the clock', () => {
    const before = BigInt(Date.now()) * 1000n;
    const readings = Array.from({ length: 5000 }, () => now());
    const after = BigInt(Date.now()) * 1000n;
    for (const [index, reading] of readings.entries()) {
      if (index > 0) expect(reading > readings[index - 1]!).toBe(true);
    }
    // The two clocks of Node differ by up to two milliseconds, and a repeated reading moves on by one microsecond.
    expect(microsOf(readings[0]!)).toBeGreaterThan(before - 3000n);
    expect(microsOf(readings.at(-1)!)).toBeLessThan(after + 10_000n);
  });

  test('equal those that PostgreSQL parses from the same text, in both directions', async () => {
    const client = new pg.Client({
      ...connectionConfig(withDatabase(inject('server'), 'template1')),
      types: pg.types,
    });
    await client.connect();
    try {
      const texts = fc
        .sample(anyParts, 400)
        .map((parts): Parts => ({ ...parts, fraction: parts.fraction?.slice(0, 6), round: 'down' }))
        // Offsets of PostgreSQL end at 15:59.
        .filter((parts) => microsOfParts(parts) !== undefined && (parts.offset?.hours ?? 0) < 16)
        .map(textOf);
      expect(texts.length).toBeGreaterThan(50);
      const { rows } = await client.query<{ read: string }>(
        'select value::timestamptz::text as read from unnest($1::text[]) with ordinality as t (value, number) order by number',
        [texts],
      );
      expect(rows.map(({ read }) => instantFromPostgres(read))).toEqual(
        texts.map((text) => parseInstant(text)),
      );
      expect(rows.map(({ read }) => shortFromPostgres(read))).toEqual(
        texts.map((text) => shortInstant(parseInstant(text)!)),
      );
    } finally {
      await client.end();
    }
  });

  test('are refused, not shifted, from PostgreSQL in another zone, before Christ or infinite', () => {
    for (const text of [
      '2026-11-21 10:07:00+01',
      '2026-11-21 10:07:00',
      '0001-01-01 00:00:00+00 BC',
      'infinity',
    ]) {
      expect(() => instantFromPostgres(text)).toThrow(text);
      expect(() => shortFromPostgres(text)).toThrow(text);
    }
  });
});
