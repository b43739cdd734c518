import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { sleep } from '../../lib/sleep.js';
import { readRunTimes } from '../../runs/queries.js';
import type { StopReason } from '../../spec/statuses.js';
import { stopCause } from '../lifecycle/stop-reason.js';
import type { EndReason } from './ended-error.js';

/** How long the record of the end may take, in milliseconds. */
const RECORD_MS = 5_000;
const LOOK_EVERY_MS = 250;

/** `agent_ended`: the sandbox runs on, and its agent was killed inside. */
export interface EndCause {
  reason: StopReason | 'agent_ended';
  message: string;
}

/** Why a run ended, which the reconciler records a moment after the agent is gone. */
export async function endCauseOf(
  { pool, changes, stopping }: Context,
  { orgId, sandboxId, runId }: { orgId: string; sandboxId: string; runId: string },
): Promise<EndCause> {
  const deadline = performance.now() + RECORD_MS;
  let wake: () => void = () => undefined;
  const unsubscribe = changes.subscribe(sandboxId, () => wake());
  try {
    for (;;) {
      // Subscribed before the read, so that no change falls between them.
      const changed = new Promise<void>((resolve) => (wake = resolve));
      const [run] = await readRunTimes(pool, [{ orgId, runId }]);
      if (run && run.end_reason !== null) {
        const { stop_reason: reason, stop_message: message } = stopCause(run, run.end_reason, null);
        return { reason, message };
      }
      if (performance.now() >= deadline || stopping.aborted) break;
      const pause = new AbortController();
      await Promise.race([changed, sleep(LOOK_EVERY_MS, pause.signal)]);
      pause.abort();
    }
  } finally {
    unsubscribe();
  }
  return {
    reason: 'agent_ended',
    message: 'the agent in it ended, and no end of the sandbox is recorded yet',
  };
}

/**
 * Adds the reason and `more` to the error of an operation that ended with its sandbox. Other errors stay as they are.
 */
export async function explainEnd(
  { ended, endCause }: { ended: AbortSignal; endCause(this: void): Promise<EndCause> },
  error: unknown,
  more: () => Promise<object> = async () => Promise.resolve({}),
): Promise<unknown> {
  // A stored answer has its reason already.
  const isStored = ended.reason !== ('sandbox_stopped' satisfies EndReason);
  if (!(error instanceof ApiError) || error.kind !== 'ended_with_sandbox' || isStored) return error;
  const details = await more();
  const { reason, message } = await endCause();
  const text = `the sandbox ended before the operation did: ${message}`;
  return new ApiError('ended_with_sandbox', text, { reason, ...error.details, ...details }, { cause: error });
}
