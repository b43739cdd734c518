import { ApiError } from '../http/errors.js';
import type { SandboxStatus } from './schema.js';
import type { Operation } from './state.js';

/** The refusal of an operation that the lifecycle does not have in this status. */
export function refuseTransition(status: SandboxStatus, operation: Operation, message?: string): never {
  throw new ApiError(
    'invalid_state_transition',
    message ?? `a sandbox that is ${status} cannot be asked to ${operation}`,
    { status, operation },
  );
}
