import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { addMillis } from '../../lib/instant.js';
import { sleep } from '../../lib/sleep.js';
import { resumeForSession } from '../lifecycle/resume.js';
import { getSandbox } from '../queries.js';
import { endedError } from './ended-error.js';

/** Then the answer is `not_ready`, and the resume continues. */
const LONGEST_MS = 60_000;
/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 1_000;
/** Without a place the run ends so long after the latest session that waited for it. */
const WANTED_MS = LONGEST_MS + 30_000;

/**
 * Resumes a sandbox that its idleness has paused, and resolves when it runs. Throws ApiError when it does not, or when
 * the visit ends before.
 */
export async function untilResumed(
  ctx: Context,
  caller: Caller,
  id: string,
  ended: AbortSignal,
): Promise<void> {
  const { orgId } = caller;
  const deadline = performance.now() + LONGEST_MS;
  await resumeForSession(ctx, caller, id, addMillis(ctx.now(), WANTED_MS));
  for (;;) {
    const over = new AbortController();
    const unsubscribe = ctx.changes.subscribe(id, () => over.abort());
    try {
      const found = await getSandbox(ctx.pool, orgId, { id });
      if (!found) throw new ApiError('sandbox_not_found');
      const { status, will_start: willStart, last_failure_message: failure } = found;
      if (status === 'running') return;
      if (status !== 'starting' && !willStart) {
        const message =
          failure === null
            ? `the sandbox is ${status}, and was not resumed: start it first`
            : `the sandbox was not resumed: ${failure}`;
        throw new ApiError('invalid_state_transition', message, { status });
      }
      await sleep(LOOK_EVERY_MS, AbortSignal.any([over.signal, ended]));
    } finally {
      unsubscribe();
    }
    if (ended.aborted) throw endedError(ended);
    if (performance.now() > deadline) {
      const message = 'the sandbox is being resumed, and does not run yet: try again';
      throw new ApiError('not_ready', message, null, { headers: { 'retry-after': '1' } });
    }
  }
}
