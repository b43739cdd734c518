import { expect, test } from 'vitest';
import { ACTIVE_MS, Pace } from '../../src/fairness/pace.js';

/** At the time 1,000, several keys are active. */
function sharedPace(share: number, aheadMs: number): Pace {
  const pace = new Pace({ share, aheadMs });
  for (const key of ['a', 'b']) pace.see(key, 1_000);
  return pace;
}

test('an owner that uses up its share waits, its callers one after the other, and other owners do not', () => {
  const pace = sharedPace(0.25, 100);
  // The work of 40 ms began 40 ms ago, so it is paid for in 120.
  expect(pace.charge('a', 40, 1_000)).toBe(20);
  expect([1, 1, 2].map((millis) => pace.charge('a', millis, 1_000))).toEqual([24, 28, 36]);
  expect(pace.waitOf('a', 1_000)).toBe(36);
  expect(pace.charge('b', 1, 1_000)).toBe(0);
  expect(pace.charge('a', 1, 1_036)).toBe(4);
  expect(pace.waitOf('a', 1_040)).toBe(0);
  // Unused time is not saved.
  expect(pace.charge('a', 40, 5_000)).toBe(20);
});

test('an owner that is alone never waits, and owes nothing when another becomes active', () => {
  const pace = new Pace({ share: 0.25, aheadMs: 0 });
  for (let at = 0; at < 100; at += 1) {
    pace.see('a', at);
    expect(pace.charge('a', 100, at)).toBe(0);
  }
  pace.see('b', 100);
  expect(pace.waitOf('a', 100)).toBe(0);
  expect(pace.charge('a', 1, 100)).toBe(3);
  expect(pace.isShared(100 + ACTIVE_MS - 1)).toBe(true);
  expect(pace.isShared(100 + ACTIVE_MS)).toBe(false);
  expect(pace.charge('a', 100, 100 + ACTIVE_MS)).toBe(0);
});

test('an owner that works whenever it may has its share of the time', () => {
  for (const share of [0.2, 0.5, 0.9]) {
    const pace = sharedPace(share, 50);
    let [now, worked] = [1_000, 0];
    while (now < 61_000) {
      for (const key of ['a', 'b']) pace.see(key, now);
      const millis = 1 + (worked % 7);
      now += millis;
      worked += millis;
      now += pace.charge('a', millis, now);
    }
    expect(worked / 60_000).toBeGreaterThan(share - 0.01);
    expect(worked / 60_000).toBeLessThan(share + 0.01);
  }
});

test('work outside of requests keeps no request of its owner waiting, and its callers wait one after the other', async () => {
  const pace = new Pace({ share: 0.001, aheadMs: 0 });
  for (const key of ['a', 'b']) pace.see(key);
  let rested = 0;
  const over = new AbortController();
  const all = [1, 2].map(async () => pace.rest('a', 10_000, over.signal).then(() => (rested += 1)));
  expect(pace.waitOf('a')).toBe(0);
  expect(pace.charge('a', 1)).toBeGreaterThan(900);
  expect(rested).toBe(0);
  over.abort();
  await Promise.all(all);
  expect(rested).toBe(2);
});

test('a pace forgets owners that have no debt', () => {
  const pace = sharedPace(0.5, 0);
  pace.charge('long', 1_000, 1_000);
  for (let at = 0; at < 100; at += 1) pace.charge(`key ${at}`, 1, 1_000 + at * 2);
  expect(pace.owners).toBe(101);
  expect(pace.charge('long', 100, 3_000)).toBe(100);
  expect(pace.owners).toBe(1);
});
