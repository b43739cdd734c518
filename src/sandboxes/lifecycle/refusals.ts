import { ApiError } from '../../http/errors.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { LockedSandbox } from '../queries.js';
import type { SandboxStatus } from '../../spec/statuses.js';
import type { Operation } from './state.js';

export function refuseTransition(status: SandboxStatus, operation: Operation, message?: string): never {
  throw new ApiError(
    'invalid_state_transition',
    message ?? `a sandbox that is ${status} cannot be asked to ${operation}`,
    { status, operation },
  );
}

/** Refuses imported sandboxes and sandboxes of another runtime. */
export function refuseForeign(
  { status, runtime, run_spec }: Pick<LockedSandbox, 'status' | 'runtime' | 'run_spec'>,
  operation: Operation,
  served: string,
): RunSpec {
  if (!run_spec)
    refuseTransition(status, operation, 'the sandbox was imported: it can be read, but nothing here runs it');
  if (runtime !== served) {
    const message = `the sandbox belongs to the ${runtime} runtime, and this service runs the ${served} one`;
    refuseTransition(status, operation, message);
  }
  return run_spec;
}

/** Throws when the constraint is that of a name or a slug. */
export function refuseTaken(
  constraint: string | undefined,
  { name, slug }: { name?: string | null | undefined; slug?: string | null | undefined },
): void {
  if (constraint === 'sandboxes_name') {
    throw new ApiError('name_already_exists', `a sandbox with the name "${name}" already exists`, { name });
  }
  if (constraint === 'sandboxes_slug') {
    throw new ApiError('name_already_exists', `a sandbox with the slug "${slug}" already exists`, { slug });
  }
}
