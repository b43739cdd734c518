import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { copy } from '../../src/previews/proxy/copy.js';
import { StreamTurns } from '../../src/fairness/stream-turns.js';

const CHUNK = 64 * 1024;

test('a short answer never waits, and a long one does', () => {
  const turn = new StreamTurns().of('a');
  expect(turn(CHUNK)).toBeUndefined();
  expect(turn(CHUNK)).toBeUndefined();
  expect(turn(1)).toBeInstanceOf(Promise);
});

test('a chunk costs something, however short it is', () => {
  const turn = new StreamTurns().of('a');
  let free = 0;
  while (turn(1) === undefined) free += 1;
  expect(free).toBeLessThanOrEqual(64);
});

test('an organization with many connections copies no more than one with some', async () => {
  const turns = new StreamTurns();
  const counts = { many: 0, some: 0 };
  const over = new AbortController();
  const copyAs = async (owner: 'many' | 'some') => {
    const turn = turns.of(owner);
    while (!over.signal.aborted) {
      const wait = turn(CHUNK);
      if (!wait) continue;
      await wait;
      counts[owner] += 1;
    }
  };
  // An iteration has time for about ten chunks. A single connection copies one in each.
  const all = [
    ...Array.from({ length: 200 }, () => copyAs('many')),
    ...Array.from({ length: 12 }, () => copyAs('some')),
  ];
  for (let left = 100_000; counts.some < 500 && left > 0; left -= 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  over.abort();
  await Promise.all(all);
  expect(counts.some).toBeGreaterThanOrEqual(500);
  expect(counts.many).toBeLessThan(counts.some * 2);
});

test('a wait holds the next chunk back, and loses none', async () => {
  const source = new PassThrough();
  const sink = new PassThrough();
  const waits: (() => void)[] = [];
  const moved = () => new Promise<void>((resolve) => waits.push(resolve));
  copy(source, sink, { moved, stalled: () => undefined, stallMs: 10_000 });
  const pause = async () => new Promise((resolve) => setImmediate(resolve));
  source.write('one');
  await pause();
  source.write('two');
  await pause();
  expect(String(sink.read())).toBe('one');
  waits.shift()!();
  await pause();
  expect(String(sink.read())).toBe('two');
  sink.destroy();
  waits.shift()!();
  await pause();
});
