import { announce } from './announce';
import { adviceFor, sentence } from './advice';
import { Problem } from './api';

/** Carries out a change and tells its result. Returns whether it succeeded. `done`: undefined if the change told it. */
export async function attempt<T>(
  change: () => Promise<T>,
  done: string | ((answer: T) => string | undefined),
): Promise<boolean> {
  try {
    const answer = await change();
    const text = typeof done === 'string' ? done : done(answer);
    if (text !== undefined) announce(text);
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const request = error.requestId === null ? '' : ` (request ${error.requestId})`;
    announce(`${sentence(error.message)} ${adviceFor(error)}${request}`, true);
    return false;
  }
}
