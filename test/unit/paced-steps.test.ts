import { setImmediate } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Pace } from '../../src/fairness/pace.js';
import { SHARE_MS } from '../../src/fairness/loop-time.js';
import { PacedSteps } from '../../src/fairness/paced-steps.js';
import { until } from '../support/polling.js';

test('long work leaves the event loop to others, and ends', async () => {
  const work = new PacedSteps();
  let done = 0;
  work.run(
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

test('owners take turns, and the work of one owner keeps its order', async () => {
  const work = new PacedSteps();
  const order: string[] = [];
  work.run(
    'x',
    steps(1, () => undefined, 20),
  );
  for (const name of ['a1', 'a2', 'b1'])
    work.run(
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

test('many readers of one owner take no time of another owner, and divide their own', async () => {
  const work = new PacedSteps();
  const steps = new Map<string, number>();
  const leave = new AbortController();
  const read = async (key: string, name: string) => {
    for (let count = 1; !leave.signal.aborted; count += 1) {
      await work.step(key, () => busy(0.2, () => steps.set(name, count)));
    }
  };
  const many = Array.from({ length: 60 }, (_, index) => `a${index}`);
  const readers = [...many.map((name) => read('a', name)), read('b', 'b')];
  const total = () => [...steps.values()].reduce((sum, count) => sum + count, 0);
  let most = 0;
  for (let iteration = 0; iteration < 120; iteration += 1) {
    const before = total();
    await setImmediate();
    most = Math.max(most, total() - before);
  }
  leave.abort();
  await Promise.all(readers);
  const counts = many.map((name) => steps.get(name) ?? 0);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(2);
  expect(steps.get('b')).toBeGreaterThan(4 * Math.max(...counts));
  // Two slices may fall between two observations.
  expect(most).toBeLessThanOrEqual((2 * SHARE_MS) / 0.2 + 2);
});

function sharedPace(): Pace {
  const pace = new Pace({ share: 0.25, aheadMs: 50 });
  for (const key of ['a', 'b']) pace.see(key);
  return pace;
}

test('a step passes on its result and its error', async () => {
  const work = new PacedSteps();
  expect(await work.step('a', () => 7)).toBe(7);
  await expect(
    work.step('a', () => {
      throw new Error('broken');
    }),
  ).rejects.toThrow('broken');
  expect(await work.step('a', () => 8)).toBe(8);
});

test('steps that throw end, and later ones are done', async () => {
  const work = new PacedSteps();
  const next = () => {
    throw new Error('broken');
  };
  expect(() => work.run('a', { next })).toThrow('broken');
  const done: string[] = [];
  for (const name of ['a', 'b'])
    work.run(
      name,
      steps(1, () => done.push(name)),
    );
  await until(
    async () => done,
    (names) => names.length === 2,
  );
});

test('a step during which the process was paused costs its owner no long wait', async () => {
  const work = new PacedSteps(sharedPace());
  let paused = 0;
  const real = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => real() + paused);
  onTestFinished(() => clock.mockRestore());
  const begun = real();
  // Its owner would wait for hours.
  await work.step('a', () => (paused += 3_600_000));
  expect(real() - begun).toBeLessThan(30_000);
});

function busy(millis: number, work: () => void): void {
  for (const begun = performance.now(); performance.now() - begun < millis;);
  work();
}

test('work that follows from a step counts in the iteration of the step', async () => {
  // The clock stands still. On a busy machine the first step alone would take the whole iteration.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(1);
  onTestFinished(() => clock.mockRestore());
  const work = new PacedSteps();
  let begun = 0;
  const all = Array.from({ length: 40 }, async () => work.step('a', () => (begun += 1), SHARE_MS / 2));
  expect(begun).toBe(2);
  for (let iteration = 2; begun < all.length; iteration += 1) {
    await setImmediate();
    expect(begun).toBeLessThanOrEqual(2 * iteration);
  }
  await Promise.all(all);
});
