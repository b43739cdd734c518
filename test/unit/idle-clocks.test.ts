import { expect, test } from 'vitest';
import { IdleClocks } from '../../src/sandboxes/reconcile/idle-clocks.js';

const SECOND = 1_000;
const CORE = 1_000_000;

test('a run that takes no processor time is idle since the last time that it did', () => {
  const clocks = new IdleClocks();
  expect(clocks.observe('run', { cpuMicros: 0 }, 0)).toBe(0);
  expect(clocks.observe('run', { cpuMicros: CORE }, 10 * SECOND)).toBe(0);
  expect(clocks.observe('run', { cpuMicros: CORE }, 25 * SECOND)).toBe(15 * SECOND);
});

test('a figure that the engine has not measured again makes no run idle', () => {
  const clocks = new IdleClocks();
  const first = { cpuMicros: CORE, measuredAt: 100 * SECOND };
  clocks.observe('busy', first, 0);
  // The engine measures every 20 seconds, and the run takes a whole core.
  for (const now of [5, 10, 15, 20]) expect(clocks.observe('busy', first, now * SECOND)).toBe(0);
  const second = { cpuMicros: 21 * CORE, measuredAt: 120 * SECOND };
  expect(clocks.observe('busy', second, 25 * SECOND)).toBe(0);
  // Now it does nothing.
  const third = { cpuMicros: 21 * CORE, measuredAt: 140 * SECOND };
  expect(clocks.observe('busy', third, 45 * SECOND)).toBe(20 * SECOND);
  expect(clocks.observe('busy', third, 60 * SECOND)).toBe(20 * SECOND);
  // A caller reached into it.
  expect(clocks.observe('busy', third, 61 * SECOND, 59 * SECOND)).toBe(2 * SECOND);
});
