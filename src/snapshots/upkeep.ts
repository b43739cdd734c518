import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { EngineSnapshots } from '../engine/runtime.js';
import { addMillis } from '../lib/instant.js';
import { endAccruals } from '../volumes/accrual-queries.js';
import type { Term } from '../workers/lease.js';
import type { Collection } from './collect.js';
import { openInterval } from './record-ready.js';
import {
  chargedInVain,
  deleteFailedSnapshots,
  dueForReading,
  keptSnapshots,
  lockKept,
  setSampled,
} from './work-queries.js';

/** Operations that ended earlier are forgotten. */
const KEPT_MS = 30 * 24 * 3_600_000;

/**
 * Opens the next intervals of usage of the snapshots that the engine has. Removes some that nothing needs, and what
 * interrupted captures left. Returns whether more are to be removed.
 */
export async function tendSnapshots(
  ctx: Context,
  term: Term,
  snapshots: EngineSnapshots,
  collection: Collection,
): Promise<boolean> {
  // Before the rows: a row is older than anything that the engine has of it.
  const held = new Map((await snapshots.list()).map((one) => [one.snapshotId, one]));
  const rows = await keptSnapshots(ctx.pool, ctx.runtime.engineId);
  await readSizes(ctx, term, held);
  const isMoreLeft = await collection.pass(term, snapshots, held, rows);
  await snapshots.sweep();
  await deleteFailedSnapshots(ctx.pool, addMillis(ctx.now(), -KEPT_MS));
  return isMoreLeft;
}

/** A snapshot that the engine has lost is not charged. */
async function readSizes(ctx: Context, term: Term, held: ReadonlyMap<string, unknown>): Promise<void> {
  for (const ref of await chargedInVain(ctx.pool, ctx.runtime.engineId)) {
    if (!term.valid) return;
    await inTransaction(ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      const row = await lockKept(tx, ref);
      // It may be restored by now.
      if (row?.status !== 'deleting') return;
      await setSampled(tx, ref, null);
      await endAccruals(tx, ref.org_id, ref.id, ctx.now());
    });
  }
  const dueAt = addMillis(ctx.now(), -ctx.settings.volumeSampleMs);
  for (const ref of await dueForReading(ctx.pool, ctx.runtime.engineId, dueAt)) {
    if (!term.valid) return;
    if (!held.has(ref.id)) continue;
    await inTransaction(ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      const row = await lockKept(tx, ref);
      if (!row) return;
      const at = ctx.now();
      await setSampled(tx, ref, at);
      await openInterval(ctx, tx, row, at);
    });
  }
}
