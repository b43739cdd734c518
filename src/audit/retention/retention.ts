import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { ExplainedError } from '../../lib/explained-error.js';
import {
  monthAfter,
  monthsBefore,
  now,
  shortInstant,
  startOfMonth,
  type Instant,
} from '../../lib/instant.js';
import { RETENTION } from '../events/actor.js';
import { originOf } from '../events/content.js';
import { keysOf } from '../events/mark.js';
import { dropEmptyPartitions } from '../events/partitions.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { lockChain, type Chain } from '../log/chain-queries.js';
import { BrokenLog } from '../log/check-end.js';
import { checkSignature, signPlace, type Drop } from '../log/checkpoint.js';
import {
  allowRemoval,
  countDue,
  deleteCheckpoints,
  deleteDropped,
  deleteEntries,
  forgetMonths,
  getKeptFor,
  insertDrop,
  orgsWithRetention,
  readDrops,
  standingDrops,
  secondsFrom,
  updateKeptFor,
  type EventPlace,
} from '../log/retention-queries.js';
import { isTrusted, signKeptFor, type KeptFor } from '../log/retention-signature.js';
import type { SealContext } from '../log/seal-context.js';
import { sealAll } from '../log/seal.js';
import { walkDue } from './due-entries.js';
import { monthsWithEvents } from './months.js';

const BATCH = 5_000;
const MOST_SECONDS_APART = 86_400;

/**
 * Sets how many whole months events are kept after their own; null is for ever. Returns what it was and is. Throws ExplainedError
 * where there are no event keys: nobody would drop anything for who has not signed it.
 */
export async function setRetention(
  pool: Pool,
  orgId: string,
  months: number | null,
  actor: EventActor,
): Promise<{ before_months: number | null; after_months: number | null }> {
  return inTransaction(pool, async (tx) => {
    const chain = (await lockChain(tx, orgId, { wait: true }))!;
    const change = { before_months: chain.retention_months, after_months: months };
    if (months === null && change.before_months === null) return change;
    const keys = await keysOf(tx);
    if (!keys) {
      throw new ExplainedError(
        'how long events are kept is signed with the event keys of the service, which are not here',
      );
    }
    // A number that somebody else wrote down becomes good by who says the same.
    const kept = await getKeptFor(tx, orgId);
    if (change.before_months === months && kept && isTrusted(kept, keys.known)) return change;
    await updateKeptFor(tx, signKeptFor(keys, orgId, months, now()));
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
 * leaves is removed the next time, and whoever verifies meanwhile misses nothing. Nobody waits long for any of it: it goes in
 * batches, and a month as a whole only once nothing is left in it.
 */
export async function enforceRetention(ctx: SealContext, signal: AbortSignal): Promise<void> {
  const failed: unknown[] = [];
  // Of what older keys signed that the sealer believed, it was signed anew when the last one came.
  const forged = new Set<string>();
  for (const drop of await standingDrops(ctx.pool)) {
    const wrong = checkSignature(drop, [ctx.eventKeys().current]);
    if (!wrong) continue;
    forged.add(drop.org_id);
    failed.push(notDropped(drop.org_id, new BrokenLog(wrong.sentence)));
  }
  for (const kept of await orgsWithRetention(ctx.pool)) {
    if (signal.aborted) return;
    if (forged.has(kept.org_id)) continue;
    const before = monthsBefore(startOfMonth(ctx.now()), kept.retention_months);
    await dropDue(ctx, kept, before).catch((error: unknown) => failed.push(notDropped(kept.org_id, error)));
  }
  let latest: Instant | undefined;
  for (const drop of await standingDrops(ctx.pool)) {
    if (forged.has(drop.org_id)) continue;
    await removeDropped(ctx.pool, drop, signal);
    if (signal.aborted) return;
    if (latest === undefined || drop.dropped_before > latest) latest = drop.dropped_before;
  }
  if (latest !== undefined) await dropEmptyPartitions(ctx.pool, latest, signal);
  // One whose log is not as it was signed keeps nothing of the others.
  if (failed.length > 0) throw failed[0];
}

/** Enforces retention, unless one of two clocks is wrong: nobody gets back what was dropped too early. */
export async function enforceInTime(ctx: SealContext, signal: AbortSignal): Promise<void> {
  if ((await secondsFrom(ctx.pool, ctx.now())) > MOST_SECONDS_APART) {
    throw new Error(
      'the clocks of this machine and of the database are more than a day apart: no events are dropped',
    );
  }
  await enforceRetention(ctx, signal);
}

function notDropped(orgId: string, cause: unknown): Error {
  return new Error(`no events of the organization ${orgId} are dropped: ${String(cause)}`, { cause });
}

async function dropDue(ctx: SealContext, kept: KeptFor, before: Instant): Promise<void> {
  const orgId = kept.org_id;
  if (!isTrusted(kept, [ctx.eventKeys().current])) {
    throw new BrokenLog('how long they are kept was not set by the service');
  }
  const held = <T>(work: (tx: Transaction, chain: Chain) => Promise<T>) =>
    inTransaction(ctx.pool, async (tx) => work(tx, (await lockChain(tx, orgId, { wait: true }))!), {
      unhurried: true,
    });
  const { seq, link } = await held((tx, chain) => sealAll(ctx, tx, orgId, chain));
  if (link === null) return;
  // To count and to walk may take long. What is in the log up to there stays as it is, so that nobody has to wait for it.
  const { last, count, base } = await inTransaction(
    ctx.pool,
    async (tx) => {
      const last = (await readDrops(tx, orgId)).at(-1);
      const wrong = last && checkSignature(last, [ctx.eventKeys().current]);
      if (wrong) throw new BrokenLog(wrong.sentence);
      const count = await countDue(tx, orgId, before, seq);
      const base = last ? { seq: last.base_seq, link: last.base_link } : { seq: 0, link: originOf(orgId) };
      return { last, count, base: count === 0 ? base : await walkDue(tx, orgId, base, before, seq) };
    },
    { unhurried: true },
  );
  if (count === 0) return;
  await held(async (tx) => {
    // Another process was faster.
    if ((await readDrops(tx, orgId)).at(-1)?.seq !== last?.seq) return;
    const at = ctx.now();
    await insertDrop(
      tx,
      signPlace(ctx.eventKeys(), {
        ...{ org_id: orgId, seq, link, at, dropped_before: before },
        ...{ base_seq: base.seq, base_link: base.link },
      }),
    );
    await recordEvent(tx, {
      orgId,
      type: 'events_dropped',
      actor: RETENTION,
      resourceId: null,
      at,
      payload: { count, dropped_before: shortInstant(before), up_to_seq: seq, oldest_seq_left: base.seq + 1 },
    });
  });
}

async function removeDropped(pool: Pool, drop: Drop, signal: AbortSignal): Promise<void> {
  const removing = <T>(work: (tx: Transaction) => Promise<T>) =>
    inTransaction(pool, async (tx) => {
      await allowRemoval(tx);
      return work(tx);
    });
  const { org_id: orgId, dropped_before: before } = drop;
  for (const month of await monthsWithEvents(pool, orgId, before)) {
    const within = [month, monthAfter(month)] as const;
    let reached: EventPlace | undefined;
    do {
      if (signal.aborted) return;
      reached = await removing((tx) => deleteDropped(tx, drop, within, reached, BATCH));
    } while (reached);
  }
  // Entries go after their events: an event without an entry would look like one that somebody put there.
  const first = await removing((tx) => deleteCheckpoints(tx, drop));
  for (let from = first ?? Infinity; from <= drop.base_seq; from += BATCH) {
    if (signal.aborted) return;
    const to = Math.min(from + BATCH - 1, drop.base_seq);
    await removing((tx) => deleteEntries(tx, orgId, from, to));
  }
  await inTransaction(pool, async (tx) => {
    await lockChain(tx, orgId, { wait: true });
    await allowRemoval(tx);
    await forgetMonths(tx, drop);
  });
}
