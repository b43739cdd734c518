import { makeConcurrencyLimit, type Slots } from './concurrency-limit.js';

interface Waiter<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

export interface FairBatchOptions {
  concurrency: number;
  maxBatch: number;
  waiting: Slots;
  refusal: () => Error;
}

/** Like `inBatches`, for items of several sources, which take turns with one item each. */
export function inFairBatches<T, R>(
  work: (items: readonly T[]) => Promise<readonly R[]>,
  { concurrency, maxBatch, waiting, refusal }: FairBatchOptions,
): (item: T, source: string) => Promise<R> {
  const queues = new Map<string, Waiter<T, R>[]>();
  const limit = makeConcurrencyLimit(waiting);
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

  return async (item, source) => {
    const release = limit.acquire(source);
    if (!release) throw refusal();
    return new Promise<R>((resolve, reject) => {
      const queue = queues.get(source) ?? [];
      queue.push({ item, resolve, reject });
      queues.set(source, queue);
      if (running < concurrency) void run();
    }).finally(release);
  };
}
