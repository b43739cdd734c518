import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GrowingBuffer } from '../../src/lib/growing-buffer.js';
import { outputText } from '../../src/sandboxes/exec/output-text.js';
import { PacedOutput } from '../../src/sandboxes/exec/paced-output.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const inStep = async <T>(work: () => T) => work();
/** Whole, cut and wrong sequences of UTF-8. */
const byte = fc.constantFrom(0x41, 0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82, 0xac, 0xc3, 0xff, 0xed, 0xa0);
const part = fc
  .tuple(fc.array(byte, { maxLength: 40 }), fc.constantFrom(1, 5_000))
  .map(([bytes, times]) => Buffer.from(Array.from({ length: times }, () => bytes).flat()));

test.each(['utf8', 'base64'] as const)('output in pieces has the %s text of its bytes', async (encoding) => {
  await fc.assert(
    fc.asyncProperty(fc.array(part, { maxLength: 6 }), async (parts) => {
      const kept = new GrowingBuffer();
      for (const piece of parts) kept.push(piece);
      const text = await outputText(kept.bytes, encoding, inStep);
      expect(text === Buffer.concat(parts).toString(encoding)).toBe(true);
    }),
    { numRuns: 60 },
  );
});

test('bytes that were read of growing memory stay as they were', () => {
  const kept = new GrowingBuffer();
  const before = [];
  for (let count = 0; count < 3_000; count += 1) {
    kept.push(Buffer.from(String(count % 10)));
    if (count % 500 === 0) before.push([kept.bytes, count + 1] as const);
  }
  const all = '0123456789'.repeat(300);
  expect(kept.bytes.toString()).toBe(all);
  for (const [bytes, length] of before) expect(bytes.toString()).toBe(all.slice(0, length));
});

/** The bytes of memory that `count` pieces of one byte take, each from a chunk of its own. */
function memoryOf(count: number, push: (piece: Buffer) => void): number {
  collectGarbage();
  const before = process.memoryUsage();
  for (let index = 0; index < count; index += 1) push(Buffer.alloc(1));
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external - before.heapUsed - before.external;
}

test('output of single bytes takes about as much memory as its bytes', () => {
  const kept = new GrowingBuffer();
  const pieces = 1_000_000;
  // A list of pieces took 115 bytes for each.
  expect(memoryOf(pieces, (piece) => kept.push(piece))).toBeLessThan(10 * pieces);
  expect(kept.length).toBe(pieces);
});

test('output is granted after the step that took it, in order, and small pieces share a step', async () => {
  let steps = 0;
  let free = Promise.resolve();
  const taken: string[] = [];
  let granted = 0;
  const output = new PacedOutput(
    async (work) => {
      await free;
      steps += 1;
      return work();
    },
    (stream, data) => void taken.push(`${stream} ${data.toString()}`),
    (bytes) => (granted += bytes),
  );
  let release = () => undefined as void;
  free = new Promise((resolve) => (release = resolve));
  const names = Array.from({ length: 600 }, (_, index) => String(index).padStart(3, '0'));
  for (const name of names) output.push(Number(name) % 2 === 0 ? 'stdout' : 'stderr', Buffer.from(name));
  expect([steps, granted]).toEqual([0, 0]);
  release();
  await output.taken();
  expect(taken).toEqual(names.map((name) => `${Number(name) % 2 === 0 ? 'stdout' : 'stderr'} ${name}`));
  expect([steps, granted]).toEqual([3, 1_800]);
  output.push('stdout', Buffer.alloc(200_000));
  output.push('stdout', Buffer.alloc(1));
  await output.taken();
  expect([steps, granted]).toEqual([5, 201_801]);
});

test('a step decodes 64 KiB of output', async () => {
  let steps = 0;
  const count = async <T>(work: () => T) => {
    steps += 1;
    return work();
  };
  await outputText(Buffer.alloc(440_000, 'compiled another file\n'), 'utf8', count);
  expect(steps).toBe(7);
});
