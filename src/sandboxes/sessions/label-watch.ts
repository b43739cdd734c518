import type { Context } from '../../context.js';
import { startLoop } from '../../lib/loop.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';

/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 1_000;

/**
 * Aborts when the sandbox loses one of these labels, and with it the access of the key. A removed sandbox loses none.
 * Watches until `until` aborts.
 */
export function watchLabels(
  { pool, changes, log }: Context,
  { orgId, id }: { orgId: string; id: string },
  requiredLabels: NonNullable<SandboxKey['requiredLabels']>,
  until: AbortSignal,
): AbortSignal {
  const left = new AbortController();
  const loop = startLoop(
    async () => {
      const isThere = await getWorkerOf(pool, orgId, { id });
      if (isThere && !(await getWorkerOf(pool, orgId, { id, requiredLabels }))) left.abort();
    },
    {
      intervalMs: LOOK_EVERY_MS,
      maxBackoffMs: LOOK_EVERY_MS,
      onError: (error) => log.warn({ err: error }, 'the labels of a sandbox could not be looked at'),
    },
  );
  const unsubscribe = changes.subscribe(id, () => loop.wake());
  const over = () => {
    unsubscribe();
    void loop.stop();
  };
  until.addEventListener('abort', over, { once: true });
  if (until.aborted) over();
  return left.signal;
}
