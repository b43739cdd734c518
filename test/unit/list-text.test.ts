import fc from 'fast-check';
import { expect, test } from 'vitest';
import { listText } from '../../src/http/list-text.js';
import { Turns } from '../../src/lib/turns.js';

test('a list in pieces has the text of JSON.stringify', async () => {
  const item = fc.record({ path: fc.string({ unit: 'grapheme' }), size: fc.integer() });
  await fc.assert(
    fc.asyncProperty(fc.string(), fc.array(item, { maxLength: 350, size: 'max' }), async (name, items) => {
      const text = await listText(new Turns(), 'org', name, items);
      expect(text.toString()).toBe(JSON.stringify({ [name]: items }));
    }),
    { numRuns: 50 },
  );
});

test('the event loop turns while a long list becomes text', async () => {
  const items = Array.from({ length: 50_000 }, (_, index) => ({
    path: `/f-${index}`,
    note: 'x'.repeat(500),
  }));
  let isDone = false;
  let turned = 0;
  const count = () => {
    turned += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await listText(new Turns(), 'org', 'entries', items);
  isDone = true;
  // In one step it would turn once at most.
  expect(turned).toBeGreaterThan(5);
});
