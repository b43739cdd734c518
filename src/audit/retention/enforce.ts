import type { Pool, Sql } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { monthAfter, monthsBefore, shortInstant, startOfMonth, type Instant } from '../../lib/instant.js';
import { RETENTION } from '../events/actor.js';
import { genesisLink } from '../events/hash-chain.js';
import { dropEmptyPartitions } from '../events/partitions.js';
import { recordEvent } from '../events/record.js';
import { lockHead, type ChainHead } from '../log/chain-queries.js';
import { checkSignature, signCheckpoint, type DropRecord } from '../log/checkpoint.js';
import {
  allowRemoval,
  clockSkewSeconds,
  countDue,
  currentDrops,
  deleteCheckpoints,
  deleteDropped,
  deleteEmptyMonths,
  deleteEntries,
  insertDrop,
  listDrops,
  orgsWithRetention,
  type EventKey,
} from '../log/retention-queries.js';
import { isRetentionTrusted, type SignedRetention } from '../log/retention-signature.js';
import { sealQueue } from '../log/seal.js';
import type { SealContext } from '../log/seal-context.js';
import { BrokenLog } from '../log/verify-head.js';
import { findLastDue } from './last-due-entry.js';

const BATCH = 5_000;
const MAX_CLOCK_SKEW_SECONDS = 86_400;

/**
 * A signed drop record precedes each deletion: the next run finishes an interrupted one, and verification accepts the
 * missing events. Deletions run in short batches; a month is dropped as a partition once it is empty.
 */
export async function enforceRetention(ctx: SealContext, signal: AbortSignal): Promise<void> {
  const failures: unknown[] = [];
  // The sealer signs trusted drop records again after a key rotation, so the current key must have signed all.
  const forged = new Set<string>();
  for (const drop of await currentDrops(ctx.pool)) {
    const fault = checkSignature(drop, [ctx.eventKeys().current]);
    if (!fault) continue;
    forged.add(drop.org_id);
    failures.push(explainFailure(drop.org_id, new BrokenLog(fault.sentence)));
  }
  for (const retention of await orgsWithRetention(ctx.pool)) {
    if (signal.aborted) return;
    const { org_id, retention_months } = retention;
    if (forged.has(org_id)) continue;
    const before = monthsBefore(startOfMonth(ctx.now()), retention_months);
    await recordDrop(ctx, retention, before).catch((error: unknown) =>
      failures.push(explainFailure(org_id, error)),
    );
  }
  let latest: Instant | undefined;
  for (const drop of await currentDrops(ctx.pool)) {
    if (forged.has(drop.org_id)) continue;
    await deleteByRecord(ctx.pool, drop, signal);
    if (signal.aborted) return;
    if (latest === undefined || drop.dropped_before > latest) latest = drop.dropped_before;
  }
  if (latest !== undefined) await dropEmptyPartitions(ctx.pool, latest, signal);
  // Thrown last: the broken log of one organization does not stop the retention of others.
  const [failure] = failures;
  if (failure !== undefined) throw failure;
}

/** Enforces retention unless a clock is wrong: dropped events cannot be restored. */
export async function enforceWithClockCheck(ctx: SealContext, signal: AbortSignal): Promise<void> {
  if ((await clockSkewSeconds(ctx.pool, ctx.now())) > MAX_CLOCK_SKEW_SECONDS) {
    throw new Error(
      'no events are dropped: the clocks of this machine and of the database are more than a day apart; correct them',
    );
  }
  await enforceRetention(ctx, signal);
}

function explainFailure(orgId: string, cause: unknown): Error {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new Error(
    `cannot drop events of the organization ${orgId}: ${reason}; run "sandkeep events verify"`,
    { cause },
  );
}

async function recordDrop(ctx: SealContext, retention: SignedRetention, before: Instant): Promise<void> {
  const orgId = retention.org_id;
  if (!isRetentionTrusted(retention, [ctx.eventKeys().current])) {
    throw new BrokenLog('the service did not set the retention; set it with "sandkeep events retention"');
  }
  const withHead = <T>(work: (tx: Transaction, head: ChainHead) => Promise<T>) =>
    inTransaction(ctx.pool, async (tx) => work(tx, (await lockHead(tx, orgId, { wait: true }))!), {
      unhurried: true,
    });
  const { seq, link } = await withHead((tx, head) => sealQueue(ctx, tx, orgId, head));
  if (link === null) return;
  // The count and the walk are slow. They need no lock: entries up to `seq` do not change.
  const { previous, count, base } = await inTransaction(
    ctx.pool,
    async (tx) => {
      const previous = (await listDrops(tx, orgId)).at(-1);
      const fault = previous && checkSignature(previous, [ctx.eventKeys().current]);
      if (fault) throw new BrokenLog(fault.sentence);
      const count = await countDue(tx, orgId, before, seq);
      const base = previous
        ? { seq: previous.base_seq, link: previous.base_link }
        : { seq: 0, link: genesisLink(orgId) };
      return { previous, count, base: count === 0 ? base : await findLastDue(tx, orgId, base, before, seq) };
    },
    { unhurried: true },
  );
  if (count === 0) return;
  await withHead(async (tx) => {
    if ((await listDrops(tx, orgId)).at(-1)?.seq !== previous?.seq) return;
    const at = ctx.now();
    await insertDrop(
      tx,
      signCheckpoint(ctx.eventKeys(), {
        org_id: orgId,
        seq,
        link,
        at,
        dropped_before: before,
        base_seq: base.seq,
        base_link: base.link,
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

async function deleteByRecord(pool: Pool, drop: DropRecord, signal: AbortSignal): Promise<void> {
  const removing = <T>(work: (tx: Transaction) => Promise<T>) =>
    inTransaction(pool, async (tx) => {
      await allowRemoval(tx);
      return work(tx);
    });
  const { org_id: orgId, dropped_before: before } = drop;
  for (const month of await monthsWithEvents(pool, orgId, before)) {
    const window = { from: month, to: monthAfter(month) };
    let last: EventKey | undefined;
    do {
      if (signal.aborted) return;
      last = await removing((tx) => deleteDropped(tx, drop, window, last, BATCH));
    } while (last);
  }
  // Entries are deleted after their events: an event without an entry counts as inserted.
  const first = await removing((tx) => deleteCheckpoints(tx, drop));
  for (let from = first ?? Infinity; from <= drop.base_seq; from += BATCH) {
    if (signal.aborted) return;
    const to = Math.min(from + BATCH - 1, drop.base_seq);
    await removing((tx) => deleteEntries(tx, orgId, from, to));
  }
  await inTransaction(pool, async (tx) => {
    await lockHead(tx, orgId, { wait: true });
    await allowRemoval(tx);
    await deleteEmptyMonths(tx, drop);
  });
}

/** The months before `before` in which an organization has or had events, newest first, by their first instants. */
async function monthsWithEvents(sql: Sql, orgId: string, before: Instant): Promise<Instant[]> {
  const { rows } = await sql.query<{ month: Instant }>(
    `with recursive found (month) as (
       select $2::timestamptz
       union all
       select greatest(
         (select m.month from event_months m
          where m.org_id = $1 and m.month < found.month
          order by m.month desc limit 1),
         (select date_trunc('month', u.occurred_at, 'UTC') from unsealed_events u
          where u.org_id = $1 and u.occurred_at < found.month
          order by u.occurred_at desc limit 1))
       from found where found.month is not null
     )
     select month from found where month < $2::timestamptz`,
    [orgId, before],
  );
  return rows.map(({ month }) => month);
}
