import { ApiError } from '../http/errors.js';
import { ExplainedError } from '../lib/explained-error.js';

/** What the API would refuse, in its words. */
export function explained(error: unknown): never {
  throw error instanceof ApiError ? new ExplainedError(error.message, { cause: error }) : error;
}
