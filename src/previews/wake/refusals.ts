import { ApiError } from '../../http/errors.js';
import type { WakeRefusal } from '../../sandboxes/lifecycle/wake.js';
import type { StopReason } from '../../spec/statuses.js';

/** Why a request has no running sandbox. `starting`: a later request may have one. */
export type AsleepReason =
  WakeRefusal | 'starting' | 'stopped' | 'quota' | 'start_failed' | 'too_many_waiting';

/** The waiting page reads the reason there: answers to HEAD have no body. */
export const REASON_HEADER = 'sandkeep-reason';

/**
 * Sentences without names and numbers: callers of previews may be strangers to the organization. The API has the exact
 * reason.
 */
const MESSAGES: Record<AsleepReason, string> = {
  starting: 'the sandbox is starting: repeat the request, or send "Prefer: wait=30" to wait',
  stopped: 'the sandbox was stopped meanwhile: repeat the request to start it',
  not_allowed:
    'the sandbox does not run, and requests do not start it: its owner can start it, or set lifecycle.wake_on_request',
  stopped_by_caller:
    'the sandbox was stopped, and requests of open pages do not start it: load the page again',
  secret_violation: 'the sandbox was stopped because it misused a secret: its owner can start it',
  starts_fail: 'the latest starts of the sandbox failed, so the next one waits: try again later',
  start_failed: 'the sandbox did not start: its owner finds the reason in its last_failure_message',
  quota: 'the sandbox cannot be started now: a limit of its organization or of its machine does not allow it',
  too_many_waiting: 'too many requests wait for starts: try again',
};

const RETRY_AFTER_SECS: Partial<Record<AsleepReason, number>> = {
  starting: 1,
  stopped: 1,
  start_failed: 5,
  quota: 30,
  too_many_waiting: 5,
};

export function asleep(reason: AsleepReason, retryAfterMs?: number): ApiError {
  const secs = retryAfterMs === undefined ? RETRY_AFTER_SECS[reason] : Math.ceil(retryAfterMs / 1_000);
  const headers = {
    [REASON_HEADER]: reason,
    ...(secs === undefined ? {} : { 'retry-after': String(Math.max(1, secs)) }),
  };
  return new ApiError('sandbox_not_running', MESSAGES[reason], { reason }, { headers });
}

/** For a sandbox that was to start and has ended. */
export function endedReason(reason: StopReason | null): AsleepReason {
  switch (reason) {
    case 'requested':
    case 'idle':
    case 'max_duration':
    case 'paused':
      return 'stopped';
    case 'quota':
    case 'budget':
    case 'disk_full':
      return 'quota';
    case 'secret_violation':
      return 'secret_violation';
    default:
      return 'start_failed';
  }
}
