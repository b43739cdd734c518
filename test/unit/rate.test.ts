import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Rate } from '../../src/fairness/rate.js';

test('an owner is ahead by its charges less the time that has passed, whatever others do', () => {
  const step = fc.record({
    owner: fc.constantFrom('a', 'b', 'c'),
    millis: fc.integer({ min: 0, max: 500 }),
    pause: fc.integer({ min: 0, max: 300 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const rate = new Rate();
      const ahead = new Map<string, number>();
      let now = 1_000;
      for (const { owner, millis, pause } of steps) {
        now += pause;
        for (const [name, left] of ahead) ahead.set(name, Math.max(0, left - pause));
        ahead.set(owner, (ahead.get(owner) ?? 0) + millis);
        expect(rate.charge(owner, millis, now)).toBe(ahead.get(owner));
        for (const [name, left] of ahead) expect(rate.aheadOf(name, now)).toBe(left);
      }
    }),
  );
});

test('owners that are no longer ahead are forgotten, also after a burst of thousands', () => {
  const rate = new Rate();
  for (let index = 0; index < 5_000; index += 1) rate.charge(`owner ${index}`, 1 + (index % 7), 1_000);
  expect(rate.size).toBe(5_000);
  rate.charge('a', 10_000, 2_000);
  expect(rate.size).toBe(1);
  // An owner that is far ahead keeps those behind it, but not for longer than it is ahead itself.
  for (let index = 0; index < 100; index += 1) rate.charge(`owner ${index}`, 1, 2_000);
  rate.charge('b', 1, 11_999);
  expect(rate.size).toBe(102);
  rate.charge('b', 1, 12_001);
  expect(rate.size).toBe(1);
});

test('a charge is not negative', () => {
  expect(() => new Rate().charge('a', -1, 0)).toThrow('not negative');
  expect(() => new Rate().charge('a', Number.NaN, 0)).toThrow('not negative');
});
