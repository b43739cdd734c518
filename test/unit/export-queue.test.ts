import { expect, onTestFinished, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { ExportQueue, type ExportOutcome } from '../../src/telemetry/export-queue.js';
import { until } from '../support/polling.js';

function makeQueue(send: (items: number[]) => Promise<void>, most = 10, batch = 4) {
  const counts: Record<ExportOutcome, number> = { exported: 0, dropped: 0, failed: 0 };
  const errors: (string | undefined)[] = [];
  const queue = new ExportQueue<number>({
    most,
    batch,
    everyMs: 5,
    send,
    count: (outcome, items) => (counts[outcome] += items),
    onSent: (error) => errors.push(error?.message),
  });
  onTestFinished(() => queue.close(10));
  return { queue, counts, errors };
}
const range = (count: number) => Array.from({ length: count }, (_, index) => index);

test('items arrive once and in order, in batches, one at a time', async () => {
  const batches: number[][] = [];
  let atOnce = 0;
  const { queue, counts } = makeQueue(async (items) => {
    atOnce += 1;
    expect(atOnce).toBe(1);
    batches.push(items);
    await sleep(1);
    atOnce -= 1;
  }, 1_000);
  for (const item of range(101)) {
    queue.add(item);
    if (item % 10 === 0) await sleep(1);
  }
  await until(
    () => Promise.resolve(counts.exported),
    (exported) => exported === 101,
  );
  expect(batches.flat()).toEqual(range(101));
  expect(Math.max(...batches.map(({ length }) => length))).toBe(4);
  expect(counts).toEqual({ exported: 101, dropped: 0, failed: 0 });
});

test('a collector that hangs costs items beyond the limit, and a bounded time at the close', async () => {
  const { queue, counts } = makeQueue(() => new Promise(() => undefined));
  for (const item of range(100)) queue.add(item);
  expect(counts.dropped).toBe(86);
  const began = performance.now();
  await queue.close(50);
  // Without the bound the close would wait for the collector for ever. The rest is for a busy machine.
  expect(performance.now() - began).toBeLessThan(50_000);
  // The batch on the wire has no outcome.
  expect(counts).toEqual({ exported: 0, dropped: 96, failed: 0 });
  queue.add(1);
  expect(counts.dropped).toBe(97);
});

test('refused batches are counted, and later ones are sent', async () => {
  let refuses = true;
  const { queue, counts, errors } = makeQueue(() =>
    refuses ? Promise.reject(new Error('no')) : Promise.resolve(),
  );
  for (const item of range(4)) queue.add(item);
  await until(
    () => Promise.resolve(counts.failed),
    (failed) => failed === 4,
  );
  refuses = false;
  queue.add(5);
  await queue.close(50_000);
  expect(counts).toEqual({ exported: 1, dropped: 0, failed: 4 });
  expect(errors).toEqual(['no', undefined]);
});
