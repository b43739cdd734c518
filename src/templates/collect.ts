import { RECONCILER } from '../audit/events/actor.js';
import type { WorkerContext } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { UPLOAD_TIMEOUT_MS } from '../http/server.js';
import { addMillis } from '../lib/instant.js';
import { scheduleDeletion } from '../snapshots/delete.js';
import { failSnapshot } from '../snapshots/fail.js';
import { lockReady, lockSnapshot } from '../snapshots/work-queries.js';
import type { Term } from '../workers/lease.js';
import { deleteLeftContexts } from './context/queries.js';
import { deleteOldLayers, unneededSnapshots } from './layer-queries.js';
import { deleteOldBuilds } from './work-queries.js';

const BATCH = 100;
const HOUR_MS = 3_600_000;
/** The results of steps that no build has used for longer go. */
const LAYERS_KEPT_MS = 7 * 24 * HOUR_MS;
/** Failed builds, and the logs of deleted templates. */
const BUILDS_KEPT_MS = 30 * 24 * HOUR_MS;
/** The time of a piece is that at which its upload began. The build is stored after the last piece. */
const PIECES_KEPT_MS = 2 * UPLOAD_TIMEOUT_MS;

/** Removes everything of builds that nothing needs any more. */
export async function collectTemplates(ctx: WorkerContext, term: Term): Promise<void> {
  const at = ctx.now();
  await deleteOldLayers(ctx.pool, addMillis(at, -LAYERS_KEPT_MS));
  await deleteLeftContexts(ctx.pool, addMillis(at, -PIECES_KEPT_MS));
  await deleteOldBuilds(ctx.pool, addMillis(at, -BUILDS_KEPT_MS));
  for (const ref of await unneededSnapshots(ctx.pool, ctx.runtime.engineId, BATCH)) {
    if (!term.valid) return;
    await inTransaction(ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      const ready = await lockReady(tx, ref);
      if (ready) {
        await scheduleDeletion(tx, ready, RECONCILER, ctx.now(), 0);
        return;
      }
      const row = await lockSnapshot(tx, ref);
      if (row?.status !== 'queued' && row?.status !== 'in_progress') return;
      await failSnapshot(
        tx,
        row,
        { code: 'cancelled', message: 'its build has ended' },
        RECONCILER,
        ctx.now(),
      );
    });
  }
}
