import type { Context } from '../context.js';
import { announceLog } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { microsOf, type Instant } from '../lib/instant.js';
import { leafOf, linkOf, originOf } from './canonical.js';
import {
  appendEntries,
  keepPublicKey,
  latestCheckpoint,
  lockChain,
  orgsWithUnsealed,
  readUnsealed,
  writeEnd,
  type Chain,
  type NewEntry,
} from './chain-queries.js';
import { signPlace } from './checkpoint.js';

/** What sealing needs of the context. */
export type SealContext = Pick<Context, 'pool' | 'eventKeys' | 'now'>;

/** Entries of one transaction. */
const BATCH = 1_000;
/** Of the signed ends of a log one is kept for so many entries, or for so much time, in microseconds. */
const ENTRIES_PER_CHECKPOINT = 1_000;
const MICROS_PER_CHECKPOINT = 60_000_000n;

/**
 * Puts the events that are committed and not in the log at the end of it. Those who write events never wait for this, nor for
 * each other: they leave them in a queue, and one process at a time links what it finds there.
 */
export async function sealEvents(ctx: SealContext, signal: AbortSignal): Promise<void> {
  for (const orgId of await orgsWithUnsealed(ctx.pool)) {
    while (!signal.aborted && (await sealBatch(ctx, orgId)) === BATCH);
  }
}

/** Returns how many entries were made; 0 also while another process is at it. */
async function sealBatch(ctx: SealContext, orgId: string): Promise<number> {
  return inTransaction(ctx.pool, async (tx) => {
    const chain = await lockChain(tx, orgId);
    return chain ? (await seal(ctx, tx, orgId, chain)).count : 0;
  });
}

/** Seals all that is committed, for who holds the chain until the transaction ends. Returns where the log ends then. */
export async function sealAll(ctx: SealContext, tx: Sql, orgId: string, locked: Chain): Promise<Chain> {
  let chain = locked;
  for (;;) {
    const { count, end } = await seal(ctx, tx, orgId, chain);
    chain = end;
    if (count < BATCH) return chain;
  }
}

async function seal(
  ctx: SealContext,
  tx: Sql,
  orgId: string,
  chain: Chain,
): Promise<{ count: number; end: Chain }> {
  const events = await readUnsealed(tx, orgId, BATCH);
  if (events.length === 0) return { count: 0, end: chain };
  let { seq, link } = { seq: chain.seq, link: chain.link ?? originOf(orgId) };
  const entries = events.map((event): NewEntry => {
    const entry = {
      seq: (seq += 1),
      event_id: event.id,
      occurred_at: event.occurred_at,
      leaf: event.leaf ?? leafOf(event),
    };
    link = linkOf(link, entry);
    return { ...entry, link };
  });
  await appendEntries(tx, orgId, entries);
  const at = ctx.now();
  const keys = ctx.eventKeys();
  if (chain.key_id !== keys.current.id) await keepPublicKey(tx, keys.current, at);
  const end = signPlace(keys, { org_id: orgId, seq, link, at });
  await writeEnd(tx, end, isTime(await latestCheckpoint(tx, orgId), seq, at));
  await announceLog(tx, orgId);
  return { count: entries.length, end: { ...chain, seq, link, at, key_id: end.key_id } };
}

function isTime(latest: { seq: number; at: Instant } | undefined, seq: number, at: Instant): boolean {
  if (!latest || seq - latest.seq >= ENTRIES_PER_CHECKPOINT) return true;
  const passed = microsOf(at) - microsOf(latest.at);
  // A clock that was set back must not keep checkpoints away.
  return passed >= MICROS_PER_CHECKPOINT || passed < 0n;
}
