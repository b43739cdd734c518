import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatPairs, parseLabels, parsePairs } from '../../console/src/lib/labels.js';

const text = fc
  .array(fc.oneof(fc.constantFrom('"', ',', '=', ' ', '\t', 'a', 'é', '😀'), fc.string({ maxLength: 3 })))
  .map((parts) => parts.join(''));

test('pairs that are written can be read, whatever characters they have', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(text, text)), (pairs) => {
      expect(parsePairs(formatPairs(pairs))).toEqual(pairs);
    }),
    { numRuns: 2_000 },
  );
});

test.each<[string, Record<string, string>]>([
  ['team=ml, env=prod', { team: 'ml', env: 'prod' }],
  [' team = ml ,, ', { team: 'ml' }],
  ['gpu', { gpu: '' }],
  ['query=a=b', { query: 'a=b' }],
  ['note="a, b", "odd=key" = "say ""hi"""', { note: 'a, b', 'odd=key': 'say "hi"' }],
  ['size=5"', { size: '5"' }],
  ['', {}],
])('%s', (typed, labels) => {
  expect(parseLabels(typed)).toEqual(labels);
});
