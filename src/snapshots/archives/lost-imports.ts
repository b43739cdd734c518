import { RECONCILER } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { addMillis } from '../../lib/instant.js';
import type { Term } from '../../workers/lease.js';
import { failSnapshot } from '../fail.js';
import { lockLostImports } from './import-queries.js';

export const RENEW_EVERY_MS = 5_000;
/** An import without a renewal in this time has lost its process. */
const LOST_AFTER_MS = 30_000;

/** Ends the imports of processes that were killed. The engine is swept like after any failure. */
export async function failLostImports(ctx: Context, term: Term): Promise<void> {
  await inTransaction(ctx.pool, async (tx) => {
    await term.assertHeld(tx);
    const at = ctx.now();
    for (const row of await lockLostImports(tx, ctx.runtime.engineId, addMillis(at, -LOST_AFTER_MS))) {
      const message = 'the service was stopped during the import: send the archive again';
      await failSnapshot(tx, row, { code: 'interrupted', message }, RECONCILER, at);
    }
  });
}
