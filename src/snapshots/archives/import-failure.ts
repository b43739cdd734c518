import { ApiError } from '../../http/errors.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { PullError } from '../../registry/pull-error.js';

const REMEDY = 'send one image, as "docker save" or the export of a snapshot writes it';

/** The answer to the caller. `most`: the bytes that the uncompressed layers may have. */
export function refusalOf(error: unknown, most: number): unknown {
  if (error instanceof ExplainedError) return refusal(error, error.message);
  if (!(error instanceof PullError)) return error;
  const { failure, message } = error;
  if (failure === 'no_space') return new ApiError('storage_full', message, null, { cause: error });
  if (failure === 'too_large') {
    const reason = `the uncompressed layers have more than the ${most} bytes that are left for them`;
    return new ApiError('quota_exceeded', `${reason}: delete snapshots, or send a smaller image`, null, {
      cause: error,
    });
  }
  return refusal(error, failure === 'engine' ? `the engine does not accept it: ${message}` : message);
}

/** The reason that the operation keeps. */
export function reasonOf(error: unknown, most: number): { code: string; message: string } {
  const refused = refusalOf(error, most);
  if (refused instanceof ApiError) return { code: refused.code, message: refused.message };
  if (error instanceof DOMException && error.name === 'TimeoutError')
    return { code: 'timed_out', message: 'the engine did not take the image in time' };
  return { code: 'engine_failed', message: 'the import failed: ask the operator for the log of the service' };
}

function refusal(cause: Error, reason: string): ApiError {
  return new ApiError('invalid_request', `the archive cannot be imported: ${reason}; ${REMEDY}`, null, {
    cause,
  });
}
