import { invalidKey } from '../../access/authenticate.js';
import { ApiError } from '../../http/errors.js';
import { shortInstant, type Instant } from '../../lib/instant.js';

/**
 * Why a visit or a session ended. `cut_off`: another process has recorded the end, because this one did not reach the
 * database for long.
 */
export type EndReason =
  | 'client_left'
  | 'key_revoked'
  | 'access_lost'
  | 'sandbox_stopped'
  | 'service_stopped'
  | 'cut_off'
  | 'session_ended';

const ERRORS: Record<EndReason, () => ApiError> = {
  client_left: () => new ApiError('invalid_request', 'the client closed the connection'),
  key_revoked: () => invalidKey(),
  access_lost: () => new ApiError('sandbox_not_found'),
  sandbox_stopped: () => new ApiError('invalid_state_transition', 'the sandbox has stopped: start it first'),
  session_ended: () => new ApiError('session_ended'),
  cut_off: () =>
    new ApiError('not_ready', 'the service lost the session: send the request again', null, {
      headers: { 'retry-after': '1' },
    }),
  service_stopped: () =>
    new ApiError('not_ready', 'the service stops: send the request again', null, {
      headers: { 'retry-after': '1' },
    }),
};

/** The answer to a request whose visit has ended. */
export function endedError({ reason }: Pick<AbortSignal, 'reason'>): ApiError {
  return ERRORS[reason as EndReason]();
}

/**
 * The same, for an operation that had begun in the sandbox. `startedAt`: of a command. Null: its start was not
 * confirmed.
 */
export function cutError(ended: AbortSignal, startedAt?: Instant | null): ApiError {
  if ((ended.reason as EndReason) !== 'sandbox_stopped') return endedError(ended);
  const started = startedAt === undefined ? {} : { started_at: startedAt && shortInstant(startedAt) };
  return new ApiError('ended_with_sandbox', undefined, started);
}
