import { expect, test } from 'vitest';
import { inFairBatches } from '../../src/lib/fair-batches.js';

test('sources take turns in batches, however much each of them asks', async () => {
  const batches: string[][] = [];
  const find = inFairBatches(
    async (items: readonly string[]) => {
      batches.push([...items]);
      return Promise.resolve(items.map((item) => item.toUpperCase()));
    },
    {
      ...{ concurrency: 1, maxBatch: 4, waiting: { total: 100, each: 10 } },
      refusal: () => new Error('too many'),
    },
  );
  const many = Array.from({ length: 12 }, (_, index) => find(`a${index}`, 'a').catch(() => 'refused'));
  const few = [find('b0', 'b'), find('c0', 'c'), find('b1', 'b')];
  expect(await Promise.all(few)).toEqual(['B0', 'C0', 'B1']);
  const all = await Promise.all(many);
  expect(all.filter((result) => result === 'refused')).toHaveLength(2);
  expect(batches.slice(0, 3)).toEqual([['a0'], ['a1', 'b0', 'c0', 'a2'], ['b1', 'a3', 'a4', 'a5']]);
});

test('an error rejects one batch, and the places of its items are free again', async () => {
  const find = inFairBatches<string, string>(async () => Promise.reject(new Error('the database is away')), {
    concurrency: 1,
    maxBatch: 2,
    waiting: { total: 2, each: 2 },
    refusal: () => new Error('too many'),
  });
  for (let count = 0; count < 5; count += 1) {
    await expect(find('x', 'a')).rejects.toThrow('the database is away');
  }
});
