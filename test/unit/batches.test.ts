import { expect, test } from 'vitest';
import { inBatches } from '../../src/fairness/batches.js';

test('owners take turns in batches, however much each of them asks', async () => {
  const batches: string[][] = [];
  const find = inBatches(
    async (items: readonly string[]) => {
      batches.push([...items]);
      return Promise.resolve(items.map((item) => item.toUpperCase()));
    },
    { concurrency: 1, maxBatch: 4 },
  );
  const many = Array.from({ length: 12 }, (_, index) => find(`a${index}`, 'a'));
  const few = [find('b0', 'b'), find('c0', 'c'), find('b1', 'b')];
  expect(await Promise.all(few)).toEqual(['B0', 'C0', 'B1']);
  expect(await Promise.all(many)).toEqual(Array.from({ length: 12 }, (_, index) => `A${index}`));
  expect(batches.slice(0, 3)).toEqual([['a0'], ['a1', 'b0', 'c0', 'a2'], ['b1', 'a3', 'a4', 'a5']]);
});

test('an error rejects one batch, and the next one begins', async () => {
  let calls = 0;
  const find = inBatches(
    async (items: readonly string[]) => {
      calls += 1;
      return calls === 1 ? Promise.reject(new Error('the database is away')) : Promise.resolve(items);
    },
    { concurrency: 1, maxBatch: 2 },
  );
  const [failing, ...next] = ['x', 'y', 'z'].map((item) => find(item));
  await expect(failing).rejects.toThrow('the database is away');
  expect(await Promise.all(next)).toEqual(['y', 'z']);
});
