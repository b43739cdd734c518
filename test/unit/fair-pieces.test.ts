import { expect, test } from 'vitest';
import { FairPieces } from '../../src/lib/fair-pieces.js';

/** Pieces that end when they are told to, and the order in which they began. */
function manualPieces(pieces: FairPieces) {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const run = (key: string, name: string) =>
    pieces.run(key, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => ends.push(resolve));
      return name;
    });
  const endOne = async () => {
    ends.shift()!();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { begun, run, endOne };
}

test('waiting keys take turns, however much one of them has queued', async () => {
  const { begun, run, endOne } = manualPieces(new FairPieces({ total: 1, each: 1 }));
  const all = [
    ...['a1', 'a2', 'a3', 'a4'].map((name) => run('a', name)),
    ...['b1', 'b2'].map((name) => run('b', name)),
    run('c', 'c1'),
  ];
  for (let count = 0; count < all.length; count += 1) await endOne();
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1']);
  expect(begun).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

test('a key never has more pieces under way than its share, and leaves the rest to others', async () => {
  const { begun, run, endOne } = manualPieces(new FairPieces({ total: 2, each: 1 }));
  const all = [run('a', 'a1'), run('a', 'a2'), run('b', 'b1'), run('b', 'b2'), run('c', 'c1')];
  expect(begun).toEqual(['a1', 'b1']);
  for (let count = 0; count < all.length; count += 1) await endOne();
  await Promise.all(all);
  expect(begun).toHaveLength(5);
});

test('a piece that fails gives its slot to the next', async () => {
  const pieces = new FairPieces({ total: 1, each: 1 });
  const failing = pieces.run('a', () => Promise.reject(new Error('broken')));
  const next = pieces.run('b', () => Promise.resolve('done'));
  await expect(failing).rejects.toThrow('broken');
  expect(await next).toBe('done');
});
