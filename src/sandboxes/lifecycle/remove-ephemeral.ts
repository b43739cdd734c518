import { RECONCILER } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { addMillis } from '../../lib/instant.js';
import { removeSandbox } from './destroy.js';
import { lockLingering } from '../reconcile/queries.js';

const BATCH = 100;

/** Removes ephemeral sandboxes some time after their end, so that polling clients see the end. */
export async function removeLingering(ctx: Context, signal: AbortSignal): Promise<void> {
  let removed: number;
  do {
    removed = await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const due = await lockLingering(tx, addMillis(at, -ctx.settings.ephemeralLingerMs), BATCH);
      for (const sandbox of due) await removeSandbox(tx, sandbox, 'ephemeral_ended', RECONCILER, at);
      return due.length;
    });
  } while (removed === BATCH && !signal.aborted);
}
