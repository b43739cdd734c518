import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { monthsBefore, now, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import { RETENTION } from './actor.js';
import { originOf } from './canonical.js';
import { lockChain } from './chain-queries.js';
import { signPlace } from './checkpoint.js';
import { dropPartition, partitionsBefore } from './partitions.js';
import { recordEvent } from './record.js';
import {
  allowRemoval,
  countDue,
  deleteDropped,
  deleteEntries,
  firstKept,
  insertDrop,
  linkAt,
  latestDrops,
  orgsWithRetention,
  updateRetention,
  type DropRow,
} from './retention-queries.js';
import type { EventActor } from './schema.js';
import { sealAll, type SealContext } from './seal.js';

const BATCH = 5_000;

/** Sets how many whole months events are kept after their own; null is for ever. Returns what it was and is. */
export async function setRetention(
  pool: Pool,
  orgId: string,
  months: number | null,
  actor: EventActor,
): Promise<{ before_months: number | null; after_months: number | null }> {
  return inTransaction(pool, async (tx) => {
    const chain = (await lockChain(tx, orgId, { wait: true }))!;
    const change = { before_months: chain.retention_months, after_months: months };
    if (change.before_months === change.after_months) return change;
    await updateRetention(tx, orgId, months);
    await recordEvent(tx, {
      orgId,
      type: 'event_retention_changed',
      actor,
      resourceId: null,
      at: now(),
      payload: change,
    });
    return change;
  });
}

/**
 * Drops the events whose time is over. First it is written and signed what is dropped, then it is removed: whatever a crash
 * leaves is removed the next time, and whoever verifies meanwhile misses nothing.
 */
export async function enforceRetention(ctx: SealContext, signal: AbortSignal): Promise<void> {
  for (const { org_id: orgId, months } of await orgsWithRetention(ctx.pool)) {
    if (signal.aborted) return;
    await dropDue(ctx, orgId, monthsBefore(startOfMonth(ctx.now()), months));
  }
  const drops = await latestDrops(ctx.pool);
  const latest = drops.reduce((most, drop) => (drop.dropped_before > most ? drop.dropped_before : most), '');
  // Whole months go at once, when nobody keeps anything of them.
  for (const name of latest === '' ? [] : await partitionsBefore(ctx.pool, latest)) {
    if (signal.aborted) return;
    await dropPartition(ctx.pool, name);
  }
  for (const drop of drops) await removeDropped(ctx.pool, drop, signal);
}

async function dropDue(ctx: SealContext, orgId: string, before: Instant): Promise<void> {
  await inTransaction(
    ctx.pool,
    async (tx) => {
      const locked = (await lockChain(tx, orgId, { wait: true }))!;
      const { seq, link } = await sealAll(ctx, tx, orgId, locked);
      const count = await countDue(tx, orgId, before);
      if (link === null || count === 0) return;
      const first = (await firstKept(tx, orgId, before)) ?? seq + 1;
      const base = {
        base_seq: first - 1,
        base_link: (await linkAt(tx, orgId, first - 1)) ?? originOf(orgId),
      };
      const at = ctx.now();
      await insertDrop(
        tx,
        signPlace(ctx.eventKeys(), { org_id: orgId, seq, link, at, dropped_before: before, ...base }),
      );
      await recordEvent(tx, {
        orgId,
        type: 'events_dropped',
        actor: RETENTION,
        resourceId: null,
        at,
        payload: { count, dropped_before: shortInstant(before), up_to_seq: seq, oldest_seq_left: first },
      });
    },
    { unhurried: true },
  );
}

async function removeDropped(pool: Pool, drop: DropRow, signal: AbortSignal): Promise<void> {
  // Entries go after their events: an event without an entry would look like one that somebody put there.
  for (const remove of [deleteDropped, deleteEntries]) {
    let removed: number;
    do {
      if (signal.aborted) return;
      removed = await inTransaction(pool, async (tx) => {
        await allowRemoval(tx);
        return remove(tx, drop, BATCH);
      });
    } while (removed === BATCH);
  }
}
