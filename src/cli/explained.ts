import { ApiError } from '../http/errors.js';
import { ExplainedError } from '../lib/explained-error.js';

/** Throws a refusal of the API as an ExplainedError with the same message. */
export function explained(error: unknown): never {
  throw error instanceof ApiError ? new ExplainedError(error.message, { cause: error }) : error;
}
