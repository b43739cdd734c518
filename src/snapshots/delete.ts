import { readerOf } from '../access/reader.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Context } from '../context.js';
import type { EventSql } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import { endAccruals } from '../volumes/accrual-queries.js';
import { failSnapshot } from './fail.js';
import { findSnapshot, updateSnapshot, type SnapshotKey, type SnapshotRow } from './queries.js';
import { TRANSITIONS } from './state.js';

/**
 * Schedules the deletion of a snapshot, or cancels the operation that makes it. Sandboxes that were made from it keep
 * their disks.
 */
export async function deleteSnapshot(
  ctx: Context,
  caller: Writer,
  key: SnapshotKey,
): Promise<{ message: string }> {
  return inWrite(ctx, caller, async (tx) => {
    const row = await findSnapshot(tx, readerOf(caller), key, 'for update');
    const outcome = row && TRANSITIONS[row.status].delete;
    if (!row || outcome === 'missing') throw new ApiError('snapshot_not_found');
    const at = ctx.now();
    if (outcome === 'failed') {
      const reason = { code: 'cancelled', message: 'the snapshot was deleted before it was complete' };
      await failSnapshot(tx, row, reason, caller.actor, at);
      return { message: `the snapshot "${row.name}" is not made` };
    }
    const purgeAt =
      row.purge_at ?? (await scheduleDeletion(tx, row, caller.actor, at, ctx.settings.volumePurgeAfterMs));
    return {
      message: `the snapshot "${row.name}" is scheduled for deletion; its data goes at ${shortInstant(purgeAt)}`,
    };
  });
}

/** The transaction has locked the ready snapshot. */
export async function scheduleDeletion(
  tx: EventSql,
  row: SnapshotRow,
  actor: EventActor,
  at: Instant,
  afterMs: number,
): Promise<Instant> {
  const purgeAt = addMillis(at, afterMs);
  await updateSnapshot(tx, row, { status: 'deleting', purge_at: purgeAt, sampled_at: null }, at);
  // The next reading is of a snapshot that sandboxes need.
  await endAccruals(tx, row.org_id, row.id, at);
  await recordEvent(tx, {
    orgId: row.org_id,
    type: 'snapshot_deletion_scheduled',
    actor,
    resourceId: row.id,
    at,
    payload: { snapshot_id: row.id, name: row.name, purge_at: shortInstant(purgeAt) },
  });
  return purgeAt;
}
