interface Waiter<T, R> {
  item: T;
  resolve: (result: R) => void;
  reject: (error: unknown) => void;
}

/**
 * Does the same work for items that come one by one: at once while fewer than `atOnce` are under way, else together with the
 * others that wait, `most` in one. Nobody waits for more than the work that was under way and what came before.
 *
 * `work` gives a result for each item, in their order; when it throws, it does so for all of them.
 */
export function inBatches<T, R>(
  work: (items: readonly T[]) => Promise<readonly R[]>,
  { atOnce, most }: { atOnce: number; most: number },
): (item: T) => Promise<R> {
  const waiting: Waiter<T, R>[] = [];
  let running = 0;

  async function run(): Promise<void> {
    running += 1;
    while (waiting.length > 0) {
      const batch = waiting.splice(0, most);
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
      waiting.push({ item, resolve, reject });
      if (running < atOnce) void run();
    });
}
