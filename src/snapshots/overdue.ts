import { RECONCILER } from '../audit/events/actor.js';
import type { WorkerContext } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { failSnapshot } from './fail.js';
import { TRANSITIONS } from './state.js';
import { lockSnapshot, overdueSnapshots } from './work-queries.js';

/** Clients wait for so long. */
export const LONGEST_CAPTURE_MS = 30 * 60_000;
/** The process with the engine fails them earlier. */
const MARGIN_MS = 60_000;
const BATCH = 100;

export const TIMED_OUT = {
  code: 'timed_out',
  message: `the capture did not end within ${LONGEST_CAPTURE_MS / 60_000} minutes`,
};

/**
 * Ends the operations that took too long, of every engine: no process may have theirs any more. A capture that
 * continues is not recorded, and its engine removes its result.
 */
export async function failOverdueSnapshots(ctx: WorkerContext): Promise<void> {
  const before = addMillis(ctx.now(), -(LONGEST_CAPTURE_MS + MARGIN_MS));
  for (const ref of await overdueSnapshots(ctx.pool, before, BATCH)) {
    await inTransaction(ctx.pool, async (tx) => {
      const row = await lockSnapshot(tx, ref);
      if (!row || TRANSITIONS[row.status].fail !== 'failed') return;
      await failSnapshot(tx, row, TIMED_OUT, RECONCILER, ctx.now());
    });
  }
}
