import { announce } from './announce';
import { adviceFor, sentence } from './advice';
import { Problem } from './api';

/** Carries out a change and tells its result. Returns whether it succeeded. */
export async function attempt(change: () => Promise<unknown>, done: string): Promise<boolean> {
  try {
    await change();
    announce(done);
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const request = error.requestId === null ? '' : ` (request ${error.requestId})`;
    announce(`${sentence(error.message)} ${adviceFor(error)}${request}`, true);
    return false;
  }
}
