import fc from 'fast-check';
import { expect, test } from 'vitest';
import { outputText } from '../../src/sandboxes/exec/output-text.js';

const inStep = async (render: () => string) => render();
/** Whole, cut and wrong sequences of UTF-8. */
const byte = fc.constantFrom(0x41, 0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82, 0xac, 0xc3, 0xff, 0xed, 0xa0);
const part = fc
  .tuple(fc.array(byte, { maxLength: 40 }), fc.constantFrom(1, 5_000))
  .map(([bytes, times]) => Buffer.from(Array.from({ length: times }, () => bytes).flat()));

test.each(['utf8', 'base64'] as const)('output in pieces has the %s text of its bytes', async (encoding) => {
  await fc.assert(
    fc.asyncProperty(fc.array(part, { maxLength: 6 }), async (parts) => {
      const text = await outputText(parts, encoding, inStep);
      expect(text === Buffer.concat(parts).toString(encoding)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

test('many small pieces of output take no more steps than a few large ones', async () => {
  let steps = 0;
  const count = async (render: () => string) => {
    steps += 1;
    return render();
  };
  const line = Buffer.from('compiled another file\n');
  await outputText(
    Array.from({ length: 20_000 }, () => line),
    'utf8',
    count,
  );
  expect(steps).toBe(7);
});
