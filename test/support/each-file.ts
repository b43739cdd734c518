import { afterAll, beforeAll } from 'vitest';
import { forgetNames } from '../../src/db/prepared.js';

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
