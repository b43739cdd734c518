import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Turns } from '../../src/lib/turns.js';
import { until } from '../support/polling.js';

test('long work leaves the event loop to others, and ends', async () => {
  const turns = new Turns();
  let done = 0;
  turns.run(
    'a',
    steps(100, () => (done += 1), 2),
  );
  await setImmediate();
  expect(done).toBeLessThan(50);
  await until(
    async () => done,
    (count) => count === 100,
  );
});

test('keys alternate, and the work of one key keeps its order', async () => {
  const turns = new Turns();
  const order: string[] = [];
  turns.run(
    'x',
    steps(1, () => undefined, 20),
  );
  for (const name of ['a1', 'a2', 'b1'])
    turns.run(
      name[0]!,
      steps(2, () => order.push(name)),
    );
  await until(
    async () => order.length,
    (count) => count === 6,
  );
  expect(order).toEqual(['a1', 'b1', 'a1', 'b1', 'a2', 'a2']);
});

function* steps(count: number, step: () => void, busyMs = 0): Generator {
  for (let i = 0; i < count; i++) {
    for (const begun = performance.now(); performance.now() - begun < busyMs;);
    step();
    yield;
  }
}
