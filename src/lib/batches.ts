interface Waiter<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

/**
 * Batches calls for single items. While `concurrency` batches are in flight, items queue; the next batch takes up to
 * `maxBatch`, one of each source in turn. `work` returns a result for each item, in order. An error of `work` rejects
 * all items of the batch.
 */
export function inBatches<T, R>(
  work: (items: readonly T[]) => Promise<readonly R[]>,
  { concurrency, maxBatch }: { concurrency: number; maxBatch: number },
): (item: T, source?: string) => Promise<R> {
  const queues = new Map<string, Waiter<T, R>[]>();
  let running = 0;

  function take(): Waiter<T, R>[] {
    const batch: Waiter<T, R>[] = [];
    while (batch.length < maxBatch && queues.size > 0) {
      const [source, queue] = queues.entries().next().value!;
      batch.push(queue.shift()!);
      queues.delete(source);
      if (queue.length > 0) queues.set(source, queue);
    }
    return batch;
  }

  async function run(): Promise<void> {
    running += 1;
    while (queues.size > 0) {
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

  return async (item, source = '') =>
    new Promise((resolve, reject) => {
      const queue = queues.get(source) ?? [];
      queue.push({ item, resolve, reject });
      queues.set(source, queue);
      if (running < concurrency) void run();
    });
}
