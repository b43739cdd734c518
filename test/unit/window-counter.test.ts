import fc from 'fast-check';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LongEvents } from '../../src/audit/events/long-events.js';
import { WindowCounter } from '../../src/fairness/window-counter.js';

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

const WINDOW_MS = 10_000;
const steps = fc.array(
  fc.record({
    owner: fc.constantFrom('a', 'b'),
    amount: fc.integer({ min: 1, max: 8 }),
    waitMs: fc.integer({ min: 0, max: 4_000 }),
    looks: fc.boolean(),
  }),
  { maxLength: 60 },
);

test('each owner has its limit in a window that begins when it is first counted', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 20 }), (all, limit) => {
      const counter = new WindowCounter(limit, WINDOW_MS);
      // A list of what was counted, in place of a sum.
      const model = new Map<string, { begun: number; counted: number[] }>();
      for (const { owner, amount, waitMs, looks } of all) {
        vi.advanceTimersByTime(waitMs);
        const now = performance.now();
        const known = model.get(owner);
        const window = known && now < known.begun + WINDOW_MS ? known : { begun: now, counted: [] };
        const sum = () => window.counted.reduce((total, each) => total + each, 0);
        const isExceeded = sum() >= limit;
        if (!looks && !isExceeded) window.counted.push(amount);
        if (!looks) model.set(owner, window);
        expect(looks ? counter.look(owner) : counter.add(owner, amount)).toEqual({
          isExceeded,
          remaining: Math.max(limit - sum(), 0),
          secsLeft: Math.max(Math.ceil((window.begun + WINDOW_MS - now) / 1_000), 1),
        });
      }
    }),
  );
});

test('the owner that was counted the longest time ago is forgotten beyond 20,000', () => {
  const counter = new WindowCounter(1, WINDOW_MS);
  for (let at = 0; at <= 20_000; at += 1) counter.add(`owner-${at}`, 1);
  expect(counter.look('owner-0').isExceeded).toBe(false);
  expect(counter.look('owner-1').isExceeded).toBe(true);
});

test('long events count when their transaction has committed, however often it was tried', () => {
  const events = new LongEvents({ maxBytes: 10, windowSecs: 60 });
  for (let attempt = 0; attempt < 5; attempt += 1) events.check('a', 10);
  events.add('a', 10);
  expect(() => events.check('a', 1)).toThrow('too many bytes of audit events');
  expect(() => events.check('a', 0)).not.toThrow();
  expect(() => events.check('b', 10)).not.toThrow();
});
