import { afterAll, beforeAll, expect, vi } from 'vitest';
import { forgetNames } from '../../src/db/prepared.js';

/**
 * Files whose tests wait for nothing but their own process and the database. Others of these folders are called slow.
 */
const QUICK = /\/test\/(unit|api)\/(?!.*\.slow\.test\.ts$)/;
/**
 * The slowest of them takes 5 s when four files share two cores. With a load of 20, 30 s were too few for three of
 * them. The time-out of others is in vitest.config.ts.
 */
const QUICK_TIMEOUT_MS = 60_000;

vi.resetConfig();
if (QUICK.test(expect.getState().testPath ?? '')) {
  vi.setConfig({ testTimeout: QUICK_TIMEOUT_MS, hookTimeout: QUICK_TIMEOUT_MS });
}

/** Too many listeners are a leak, or fill the log of an operator. The error of this listener fails the run. */
function refuseLeaks(warning: Error): void {
  if (warning.name === 'MaxListenersExceededWarning') throw warning;
}

/** Test files share processes. Each file begins with the state of a new process. */
beforeAll(() => {
  forgetNames();
  process.on('warning', refuseLeaks);
});
afterAll(() => {
  process.off('warning', refuseLeaks);
});
