import { afterEach, expect, test, vi } from 'vitest';
import { RecentTouches } from '../../src/lib/recent-touches.js';

afterEach(() => void vi.useRealTimers());

test('moving bytes touch their key, and a source that rests does not', () => {
  vi.useFakeTimers();
  const touches = new RecentTouches();
  let bytes = 5;
  const end = touches.watch('box', () => bytes);
  const endOther = touches.watch('box', () => 7);
  vi.advanceTimersByTime(3_000);
  expect(touches.at('box')).toBeUndefined();

  bytes = 6;
  vi.advanceTimersByTime(1_500);
  const first = touches.at('box');
  expect(first).toBeDefined();
  vi.advanceTimersByTime(5_000);
  expect(touches.at('box')).toBe(first);

  // Between two samples.
  bytes = 7;
  const second = touches.at('box')!;
  expect(second).toBeGreaterThan(first!);
  vi.advanceTimersByTime(100);
  bytes = 8;
  end();
  expect(touches.at('box')).toBeGreaterThan(second);
  endOther();
  expect(vi.getTimerCount()).toBe(0);
});
