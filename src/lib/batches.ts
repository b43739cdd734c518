interface Waiter<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

/**
 * Batches calls for single items. While `concurrency` batches are in flight, items queue; the next batch takes up to `maxBatch`.
 * `work` returns a result for each item, in order. An error of `work` rejects all items of the batch.
 */
export function inBatches<T, R>(
  work: (items: readonly T[]) => Promise<readonly R[]>,
  { concurrency, maxBatch }: { concurrency: number; maxBatch: number },
): (item: T) => Promise<R> {
  const queue: Waiter<T, R>[] = [];
  let running = 0;

  async function run(): Promise<void> {
    running += 1;
    while (queue.length > 0) {
      const batch = queue.splice(0, maxBatch);
      try {
        const results = await work(batch.map(({ item }) => item));
        batch.forEach(({ resolve }, index) => resolve(results[index]!));
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    running -= 1;
  }

  return async (item) =>
    new Promise((resolve, reject) => {
      queue.push({ item, resolve, reject });
      if (running < concurrency) void run();
    });
}
