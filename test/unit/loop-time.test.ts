import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { LoopTime } from '../../src/fairness/loop-time.js';

test('a newcomer waits for one step of a hog, however much work that has', async () => {
  const time = new LoopTime();
  const order: string[] = [];
  time.owe(3);
  for (let index = 0; index < 1_000; index += 1) {
    time.run('hog', () => {
      order.push('hog');
      return true;
    });
  }
  expect([time.waits, time.waitsOf('hog'), time.waitsOf('newcomer')]).toEqual([1_000, 1_000, 0]);
  time.run('newcomer', () => {
    order.push('newcomer');
    return true;
  });
  while (time.waits > 0) await setImmediate();
  expect(order.indexOf('newcomer')).toBeLessThanOrEqual(1);
  expect(order).toHaveLength(1_001);
  expect(time.waits).toBe(0);
});

test('a pause of the process delays work for three iterations at most', async () => {
  const time = new LoopTime();
  time.owe(60_000);
  const done: string[] = [];
  time.run('a', () => done.push('a') > 0);
  expect(done).toEqual([]);
  let iterations = 0;
  for (; time.waits > 0; iterations += 1) await setImmediate();
  expect(done).toEqual(['a']);
  expect(iterations).toBeLessThanOrEqual(3);
});

test('work begins at once while an iteration has time and nothing waits, and not otherwise', async () => {
  const time = new LoopTime();
  const done: string[] = [];
  expect(time.tryNow(() => done.push('first'))).toBe(true);
  time.owe(3);
  expect(time.tryNow(() => done.push('beyond the share'))).toBe(false);
  time.run('a', () => done.push('waiting') > 0);
  while (time.waits > 0) await setImmediate();
  expect(done).toEqual(['first', 'waiting']);
});

test('work that throws at once passes on its error, and its time counts', () => {
  const time = new LoopTime();
  const slow = () => {
    for (const begun = performance.now(); performance.now() - begun < 2;);
    throw new Error('broken');
  };
  expect(() => time.tryNow(slow)).toThrow('broken');
  expect(time.tryNow(() => undefined)).toBe(false);
});
