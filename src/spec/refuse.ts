import { ApiError } from '../http/errors.js';

/** Refuses a request for a sandbox, and names the field. */
export function refuse(field: string, message: string): never {
  throw new ApiError('invalid_sandbox_config', message, { field });
}
