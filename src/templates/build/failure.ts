import { ApiError } from '../../http/errors.js';
import { ContextError } from '../context/entries.js';
import { DockerfileError } from '../dockerfile/error.js';
import type { BuildFailure } from '../end.js';

/** The build fails for a reason of its own. Callers see the message. */
export class BuildError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly line: number | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Undefined: the reason is one of the service, for its log. */
export function failureOf(error: unknown): BuildFailure | undefined {
  if (error instanceof BuildError) return { code: error.code, message: error.message, line: error.line };
  if (error instanceof DockerfileError) {
    return { code: 'invalid_dockerfile', message: error.message, line: error.line };
  }
  if (error instanceof ContextError) return { code: 'invalid_context', message: error.message };
  if (error instanceof ApiError && error.status < 500) return { code: error.code, message: error.message };
  if (error instanceof ApiError && error.kind === 'not_supported') {
    return { code: 'not_supported', message: error.message };
  }
  return undefined;
}

/** Names the line of a step in its failure. */
export function atLine(error: unknown, line: number): unknown {
  const failure = failureOf(error);
  if (!failure || failure.line != null) return error;
  return new BuildError(failure.code, failure.message, line, { cause: error });
}
