import { expect, test } from 'vitest';
import {
  MOST_DELAY_MS,
  REFUSAL_DELAY_MS,
  REFUSAL_GAP_MS,
  RefusalDelays,
} from '../../src/http/refusal-delays.js';

test('the refusals of a burst are spread over time, and those of others do not wait for them', () => {
  const delays = new RefusalDelays();
  const burst = Array.from({ length: 400 }, () => delays.next('a', 0));
  expect(burst).toEqual(burst.map((_, index) => REFUSAL_DELAY_MS + index * REFUSAL_GAP_MS));
  expect(delays.next('b', 0)).toBe(REFUSAL_DELAY_MS);
});

test('a later refusal waits for those before it, and for none that are over', () => {
  const delays = new RefusalDelays();
  for (let left = 400; left > 0; left -= 1) delays.next('a', 0);
  expect(delays.next('a', 500)).toBe(REFUSAL_DELAY_MS + 400 * REFUSAL_GAP_MS - 500);
  expect(delays.next('a', 60_000)).toBe(REFUSAL_DELAY_MS);
});

test('no refusal waits longer than the longest delay: beyond it there is none', () => {
  const delays = new RefusalDelays();
  const burst = Array.from({ length: 10_000 }, () => delays.next('a', 0));
  const answered = burst.filter((delay) => delay !== undefined);
  expect(answered).toHaveLength((MOST_DELAY_MS - REFUSAL_DELAY_MS) / REFUSAL_GAP_MS + 1);
  expect(answered.at(-1)).toBe(MOST_DELAY_MS);
  expect(delays.next('a', REFUSAL_GAP_MS)).toBe(MOST_DELAY_MS);
});
