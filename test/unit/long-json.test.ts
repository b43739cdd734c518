import fc from 'fast-check';
import { expect, test } from 'vitest';
import { longJson } from '../../src/http/long-json.js';
import { PacedSteps } from '../../src/fairness/paced-steps.js';
import { anyCharacter } from '../support/any-character.js';

const short = fc.string({ unit: anyCharacter });
/** Longer than a step, with pairs of surrogates across its ends. */
const long = fc
  .tuple(fc.nat(3), fc.constantFrom('x', '\u{1F600}', '\u0001', '\ud800', '"\\'))
  .map(([offset, unit]) => '-'.repeat(offset) + unit.repeat(70_000 / unit.length));
const item = fc.record({ path: short, size: fc.integer() });
const value = fc.oneof(short, long, fc.array(item, { maxLength: 350, size: 'max' }), fc.integer(), item);

test('JSON in pieces has the text of JSON.stringify', async () => {
  await fc.assert(
    fc.asyncProperty(fc.dictionary(short, value, { maxKeys: 4 }), async (fields) => {
      const text = await longJson(new PacedSteps(), 'org', fields);
      expect(text.equals(Buffer.from(JSON.stringify(fields)))).toBe(true);
    }),
    { numRuns: 60 },
  );
});

test.each([
  ['list', Array.from({ length: 50_000 }, (_, index) => ({ path: `/f-${index}`, note: 'x'.repeat(500) }))],
  ['string', '\u0001'.repeat(8 * 1024 * 1024)],
])('the event loop runs while a long %s becomes text', async (_, long) => {
  let isDone = false;
  let turned = 0;
  const count = () => {
    turned += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await longJson(new PacedSteps(), 'org', { long });
  isDone = true;
  // In one step it would turn once at most.
  expect(turned).toBeGreaterThan(5);
});
