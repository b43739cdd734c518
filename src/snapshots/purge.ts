import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction, type EventSql } from '../db/transaction.js';
import { now, type Instant } from '../lib/instant.js';
import { endAccruals } from '../volumes/accrual-queries.js';
import type { Term } from '../workers/lease.js';
import { failSnapshot } from './fail.js';
import { isComplete, updateSnapshot, type SnapshotRow } from './queries.js';
import { TRANSITIONS } from './state.js';
import { lockDueSnapshots, lockSnapshotsOn, setErased } from './work-queries.js';

const BATCH = 100;

const WORKER_REMOVED = {
  code: 'engine_failed',
  message: 'the worker of the sandbox was removed: create the sandbox again, and repeat the request',
};

/** Ends the time in which deleted snapshots can be restored. Returns their number. */
export async function purgeDueSnapshots(ctx: Context, term: Term): Promise<number> {
  return inTransaction(ctx.pool, async (tx) => {
    await term.assertHeld(tx);
    const at = ctx.now();
    const due = await lockDueSnapshots(tx, ctx.runtime.engineId, at, BATCH);
    for (const row of due) {
      await updateSnapshot(tx, row, { removed_at: at }, at);
      await recordPurge(tx, row, at);
    }
    return due.length;
  });
}

/** The operator gives a worker up, and the snapshots on its engine. The transaction has locked its sandboxes. */
export async function loseSnapshots(tx: EventSql, workerId: string): Promise<void> {
  const at = now();
  const rows = await lockSnapshotsOn(tx, workerId);
  for (const row of rows) {
    if (TRANSITIONS[row.status].fail === 'failed')
      await failSnapshot(tx, row, WORKER_REMOVED, RECONCILER, at);
    if (!isComplete(row)) continue;
    await endAccruals(tx, row.org_id, row.id, at);
    if (row.is_purged) continue;
    const change = {
      status: 'deleting',
      purge_at: row.purge_at ?? at,
      sampled_at: null,
      removed_at: at,
    } as const;
    await updateSnapshot(tx, row, change, at);
    await recordPurge(tx, row, at);
  }
  await setErased(tx, rows, at);
}

async function recordPurge(
  tx: EventSql,
  { org_id: orgId, id, name }: Pick<SnapshotRow, 'org_id' | 'id' | 'name'>,
  at: Instant,
): Promise<void> {
  await recordEvent(tx, {
    orgId,
    type: 'snapshot_purged',
    actor: RECONCILER,
    resourceId: id,
    at,
    payload: { snapshot_id: id, name },
  });
}
