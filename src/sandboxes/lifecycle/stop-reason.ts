import type { RunTimes } from '../../runs/queries.js';
import type { StopReason } from '../../spec/statuses.js';

export interface StopCause {
  stop_reason: StopReason;
  stop_message: string;
}

type EndedRun = Pick<RunTimes, 'stop_reason' | 'command' | 'max_duration_secs' | 'idle_timeout_secs'>;

/** These say less than the request to stop that came before them. */
const VAGUE = new Set(['cancelled', 'destroyed', 'lost']);

/**
 * Why a run ended, for callers. `endReason`: as the runtime's record says. A requested stop stays one when the runtime
 * then loses the run. `message`: of the failure.
 */
export function stopCause(run: EndedRun, endReason: string, message: string | null): StopCause {
  const reason = VAGUE.has(endReason) ? (run.stop_reason ?? endReason) : endReason;
  const [stop_reason, stop_message] = causeOf(run, reason);
  return { stop_reason, stop_message: reason === endReason ? (message ?? stop_message) : stop_message };
}

function causeOf(run: EndedRun, reason: string): [StopReason, string] {
  const endsWithCommand = run.command === 'ends_run';
  switch (reason) {
    case 'requested':
    case 'cancelled':
    case 'destroyed':
      return ['requested', 'a caller stopped it'];
    case 'restart':
      return ['requested', 'a caller restarted it: it starts again, unless a stop comes before'];
    case 'paused':
      return ['paused', 'a caller paused it: its memory is on the disk, and its next start continues it'];
    case 'idle_paused':
      return ['idle', `it was idle for ${run.idle_timeout_secs} seconds, and its lifecycle pauses it then`];
    case 'idle_timeout':
      return ['idle', `it was idle for ${run.idle_timeout_secs} seconds, its idle_timeout_secs`];
    case 'max_duration_exceeded':
      return [
        'max_duration',
        `it ran for ${run.max_duration_secs} seconds, its max_duration_secs or the limit of the organization`,
      ];
    case 'quota_exhausted':
      return ['quota', 'the organization has used up its hours of the month'];
    case 'budget_exhausted':
      return ['budget', 'a budget of the organization that covers it is used up'];
    case 'disk_full':
      return ['disk_full', 'a disk was full up to its reserve, and this sandbox had grown most'];
    case 'secret_violation':
      return ['secret_violation', 'it sent the placeholder of a secret to a place that is not allowed'];
    case 'out_of_memory':
      return ['oom', 'the sandbox ran out of memory'];
    case 'start_failed':
      return ['start_failed', 'the runtime refused to start it'];
    case 'no_room_in_time':
      return ['start_failed', 'no worker had room for it while its caller waited'];
    case 'lost':
    case 'worker_removed':
      return ['lost', 'the runtime has no record of its end'];
    case 'completed':
      if (endsWithCommand) return ['command', 'its command ended with code 0'];
      return ['engine', 'its process 1 got a signal to end, and no stop was requested'];
    case 'crashed':
      if (endsWithCommand) return ['command', 'its command failed'];
      return ['engine', 'its process 1 was killed, and no stop was requested'];
    default:
      // The reasons of a cluster, such as `evicted`.
      return ['engine', 'its engine ended it'];
  }
}
