import { ApiError } from '../../http/errors.js';

/** `line`: counted from 1. */
export class DockerfileError extends Error {
  constructor(
    readonly line: number,
    message: string,
  ) {
    super(message);
  }
}

/** The refusal of a request. */
export function refusalOf({ line, message }: DockerfileError): ApiError {
  return new ApiError('invalid_request', `line ${line} of the Dockerfile: ${message}`, {
    field: 'dockerfile',
    line,
  });
}
