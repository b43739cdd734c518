import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeptOutput } from '../../src/mcp/kept-output.js';

test('the beginning and the end of any pieces are kept, and the gap is counted', () => {
  const piece = fc.string({ maxLength: 30 });
  const property = fc.property(
    fc.array(piece, { maxLength: 60 }),
    fc.integer({ min: 0, max: 100 }),
    (pieces, most) => {
      const kept = new KeptOutput(most);
      for (const text of pieces) kept.push(text);
      const whole = pieces.join('');
      const half = Math.floor(most / 2);
      const missing = whole.length - 2 * half;
      const expected =
        missing <= 0
          ? whole
          : `${whole.slice(0, half)}\n[… ${missing.toLocaleString('en-US')} characters are left out …]\n${whole.slice(whole.length - half)}`;
      expect([String(kept), kept.isCut]).toEqual([expected, missing > 0]);
    },
  );
  // A failure prints its seed.
  fc.assert(property, { numRuns: 2_000 });
});

test('many small pieces take no more memory than the limit', () => {
  const kept = new KeptOutput(1_000);
  for (let count = 0; count < 100_000; count += 1) kept.push('x');
  expect(JSON.stringify(kept).length).toBeLessThan(10_000);
});
