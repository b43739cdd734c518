import canonicalize from 'canonicalize';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { canonicalJson } from '../../src/audit/events/canonical-json.js';
import { anyCharacter } from '../support/any-character.js';

test('canonical JSON equals that of the reference implementation of RFC 8785', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5, stringUnit: anyCharacter }), (value) => {
      expect(canonicalJson(value)).toBe(canonicalize(value));
    }),
    { numRuns: 2_000 },
  );
});

test('numbers of any bits are written as by the reference implementation of RFC 8785', () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (number) => {
      expect(canonicalJson({ number })).toBe(canonicalize({ number }));
    }),
    { numRuns: 2_000 },
  );
});
