import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { EngineSnapshots } from '../engine/runtime.js';
import { addMillis } from '../lib/instant.js';
import { endAccruals } from '../volumes/accrual-queries.js';
import type { Term } from '../workers/lease.js';
import { readSize } from './complete.js';
import { updateSnapshot } from './queries.js';
import {
  chargedInVain,
  deleteFailedSnapshots,
  dueForReading,
  keptSnapshots,
  lockDueSnapshots,
  lockKept,
  setErased,
  setSampled,
} from './work-queries.js';

const BATCH = 100;
/** Operations that ended earlier are forgotten. */
const KEPT_MS = 30 * 24 * 3_600_000;

/** Ends the time in which deleted snapshots can be restored. Returns their number. */
export async function purgeDueSnapshots(ctx: Context, term: Term): Promise<number> {
  return inTransaction(ctx.pool, async (tx) => {
    await term.assertHeld(tx);
    const at = ctx.now();
    const due = await lockDueSnapshots(tx, ctx.runtime.engineId, at, BATCH);
    for (const { org_id: orgId, id, name } of due) {
      await updateSnapshot(tx, { org_id: orgId, id }, { removed_at: at }, at);
      const payload = { snapshot_id: id, name };
      await recordEvent(tx, {
        orgId,
        type: 'snapshot_purged',
        actor: RECONCILER,
        resourceId: id,
        at,
        payload,
      });
    }
    return due.length;
  });
}

/**
 * Removes from the engine the snapshots that no caller finds and no sandbox needs, and what interrupted captures left.
 * Opens the next intervals of usage of those that the engine has.
 */
export async function tendSnapshots(ctx: Context, term: Term, snapshots: EngineSnapshots): Promise<void> {
  // Before the rows: a row is older than anything that the engine has of it.
  const held = new Map((await snapshots.list()).map((one) => [one.snapshotId, one]));
  const rows = await keptSnapshots(ctx.pool, ctx.runtime.engineId);
  const known = new Set(rows.map(({ id }) => id));
  await readSizes(ctx, term, held);
  for (const { org_id, id, is_over: isOver, is_needed: isNeeded } of rows) {
    if (!term.valid) return;
    if (!isOver || isNeeded) continue;
    if (!held.has(id) || (await removed(ctx, snapshots, id)))
      await setErased(ctx.pool, { org_id, id }, ctx.now());
  }
  for (const { snapshotId, orgId } of held.values()) {
    if (!term.valid) return;
    if (known.has(snapshotId)) continue;
    ctx.log.warn({ orgId, snapshotId }, 'removing a snapshot the store does not know');
    await removed(ctx, snapshots, snapshotId);
  }
  await snapshots.sweep();
  await deleteFailedSnapshots(ctx.pool, addMillis(ctx.now(), -KEPT_MS));
}

async function removed(ctx: Context, snapshots: EngineSnapshots, snapshotId: string): Promise<boolean> {
  try {
    return await snapshots.remove(snapshotId);
  } catch (error) {
    ctx.log.error({ err: error, snapshotId }, 'cannot remove the data of a snapshot; retrying later');
    return false;
  }
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
      await readSize(ctx, tx, row, at);
    });
  }
}
