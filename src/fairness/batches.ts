import { Rotation } from './rotation.js';

interface Waiter<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

/**
 * Batches calls for single items. While `concurrency` batches are in flight, items queue; the next batch takes up to
 * `maxBatch`. Owners take turns in it. `work` returns a result for each item, in order. An error of `work` rejects all
 * items of the batch.
 */
export function inBatches<T, R>(
  work: (items: readonly T[]) => Promise<readonly R[]>,
  { concurrency, maxBatch }: { concurrency: number; maxBatch: number },
): (item: T, owner?: string) => Promise<R> {
  const waiting = new Rotation<Waiter<T, R>>();
  let running = 0;

  function take(): Waiter<T, R>[] {
    const batch: Waiter<T, R>[] = [];
    for (let next; batch.length < maxBatch && (next = waiting.take());) batch.push(next);
    return batch;
  }

  async function run(): Promise<void> {
    running += 1;
    while (waiting.size > 0) {
      const batch = take();
      try {
        const results = await work(batch.map(({ item }) => item));
        batch.forEach(({ resolve }, index) => resolve(results[index]!));
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    running -= 1;
  }

  return async (item, owner = '') =>
    new Promise((resolve, reject) => {
      waiting.add(owner, { item, resolve, reject });
      if (running < concurrency) void run();
    });
}
