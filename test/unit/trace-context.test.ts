import { createTraceState } from '@opentelemetry/api';
import { parseTraceParent } from '@opentelemetry/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatTraceparent, parseTraceparent, parseTracestate } from '../../src/lib/trace-context.js';

const DIGITS = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
const hex = (length: number) =>
  fc
    .array(fc.constantFrom(...DIGITS), { minLength: length, maxLength: length })
    .map((digits) => digits.join(''));
const header = fc
  .tuple(hex(2), hex(32), hex(16), hex(2), fc.constantFrom('', '', '-', '-x', '-00', ' '))
  .map(([version, trace, span, flags, more]) => `${version}-${trace}-${span}-${flags}${more}`);

describe('traceparent', () => {
  test('the example of the specification is read, and written again', () => {
    const text = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const context = parseTraceparent(text)!;
    expect(context).toEqual({
      traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
      spanId: '00f067aa0ba902b7',
      sampled: true,
    });
    expect(formatTraceparent(context)).toBe(text);
  });

  test('headers agree with the propagator of OpenTelemetry, except that blanks are refused', () => {
    const mutated = fc
      .tuple(header, fc.nat(60), fc.constantFrom('', 'G', 'A', '-', ',', '0', ' '))
      .map(([text, at, put]) => text.slice(0, at) + put + text.slice(at + 1));
    fc.assert(
      fc.property(fc.oneof(header, mutated, fc.string()), (text) => {
        const ours = parseTraceparent(text);
        const theirs = /\s/.test(text) ? null : parseTraceParent(text);
        expect(ours && { traceId: ours.traceId, spanId: ours.spanId, sampled: ours.sampled }).toEqual(
          theirs
            ? { traceId: theirs.traceId, spanId: theirs.spanId, sampled: (theirs.traceFlags & 1) === 1 }
            : undefined,
        );
      }),
      { numRuns: 2_000 },
    );
  });

  test.each([
    ['nothing', undefined],
    ['a list', ['00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01']],
    [
      'two headers, as Node joins them',
      '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, '.repeat(2),
    ],
    ['upper case', '00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01'],
    ['a trace id of zeros', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`],
    ['a span id of zeros', `00-4bf92f3577b34da6a3ce929d0e0e4736-${'0'.repeat(16)}-01`],
    ['version ff', 'ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'],
    ['more than version 00 has', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x'],
    ['a long header', `01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-${'x'.repeat(4_096)}`],
  ])('%s is no context', (_, value) => {
    expect(parseTraceparent(value)).toBeUndefined();
  });

  test('a later version with more parts is read', () => {
    expect(parseTraceparent('cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-09-later')?.sampled).toBe(
      true,
    );
  });
});

describe('tracestate', () => {
  test.each([
    ['a=1', 'a=1'],
    ['a=1 , b@vendor=x y,', 'a=1,b@vendor=x y'],
    ['0tenant@sys=1', '0tenant@sys=1'],
  ])('%s is kept', (given, kept) => {
    expect(parseTracestate(given)).toBe(kept);
  });

  test.each([
    ['nothing', undefined],
    ['no value', 'a'],
    ['an upper-case key', 'A=1'],
    ['a key twice', 'a=1,a=2'],
    ['33 members', Array.from({ length: 33 }, (_, index) => `k${index}=1`).join(',')],
    ['513 characters', `a=${'x'.repeat(255)},b=${'x'.repeat(254)}`],
    ['a line break', 'a=1\n2'],
  ])('%s is dropped', (_, given) => {
    expect(parseTracestate(given)).toBeUndefined();
  });

  test('OpenTelemetry keeps every accepted member', () => {
    const key = fc.stringMatching(/^[a-z][a-z0-9_*/-]{0,20}$/);
    const value = fc.stringMatching(/^[!-+\x2d-<>-~]{1,20}$/);
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(key, value), { selector: ([name]) => name, maxLength: 8 }),
        (pairs) => {
          const text = pairs.map(([name, content]) => `${name}=${content}`).join(',');
          fc.pre(text !== '' && text.length <= 512);
          expect(parseTracestate(text)).toBe(text);
          expect(createTraceState(text).serialize()).toBe(text);
        },
      ),
    );
  });
});
