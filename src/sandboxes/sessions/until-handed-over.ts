import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { sleep } from '../../lib/sleep.js';
import { getWorkerOf } from '../queries.js';
import { endedError } from './ended-error.js';

/** The worker takes some hundredths of a second. */
const LONGEST_MS = 10_000;
/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 200;

/**
 * Resolves when a sandbox of a pool has the scripts and the working directory of its create, or runs no more. Throws
 * ApiError when the worker does not hand them over, or the visit ends before.
 */
export async function untilHandedOver(
  { pool, changes }: Context,
  orgId: string,
  id: string,
  ended: AbortSignal,
): Promise<void> {
  const deadline = performance.now() + LONGEST_MS;
  for (;;) {
    const over = new AbortController();
    const unsubscribe = changes.subscribe(id, () => over.abort());
    try {
      const found = await getWorkerOf(pool, orgId, { id });
      if (found?.status !== 'running' || !found.lacks_parts) return;
      await sleep(LOOK_EVERY_MS, AbortSignal.any([over.signal, ended]));
    } finally {
      unsubscribe();
    }
    if (ended.aborted) throw endedError(ended);
    if (performance.now() > deadline) {
      const message =
        'the sandbox came from a pool, and does not have its scripts and command yet: try again';
      throw new ApiError('not_ready', message, null, { headers: { 'retry-after': '1' } });
    }
  }
}
