import { announceLog } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import { microsOf, type Instant } from '../../lib/instant.js';
import { LOG } from '../events/actor.js';
import { leafOf, linkOf, originOf } from '../events/content.js';
import { recordEvent } from '../events/record.js';
import { useKeys } from './active-key.js';
import {
  appendEntries,
  keepPublicKey,
  latestCheckpoint,
  lockChain,
  orgsSignedByOthers,
  orgsWithUnsealed,
  readUnsealed,
  writeEnd,
  type Chain,
  type NewEntry,
  type Round,
} from './chain-queries.js';
import { checkEnd, checkKnown, checkNewest } from './check-end.js';
import { signPlace } from './checkpoint.js';
import type { SealContext } from './seal-context.js';
import { signAnew } from './sign-again.js';

/** Entries of one transaction. */
const BATCH = 1_000;
/** Of the signed ends of a log one is kept for so many entries, or for so much time, in microseconds. */
const ENTRIES_PER_CHECKPOINT = 1_000;
const MICROS_PER_CHECKPOINT = 3_600_000_000n;

export interface Unsealable {
  orgId: string;
  error: unknown;
}

/**
 * Puts the events that are committed and not in the log at the end of it. Those who write events never wait for this, nor for
 * each other: they leave them in a queue, and one process at a time links what it finds there. Returns the organizations whose
 * log cannot be gone on with: none holds up the others. Throws BrokenLog when no log can.
 */
export async function sealEvents(ctx: SealContext, signal: AbortSignal): Promise<Unsealable[]> {
  await useKeys(ctx.pool, ctx.eventKeys(), ctx.now());
  const failed = new Map<string, unknown>();
  const rounds = new Map<string, Round>();
  // Also where nothing happens: whoever has the key before could write that history anew.
  const old = await orgsSignedByOthers(ctx.pool, ctx.eventKeys().current);
  // A batch of each in turn, also of those who come meanwhile: the history that one imports does not keep the others out.
  for (let more = true; more && !signal.aborted;) {
    more = false;
    for (const orgId of new Set([...old.splice(0), ...(await orgsWithUnsealed(ctx.pool))])) {
      if (signal.aborted) break;
      if (failed.has(orgId)) continue;
      try {
        const left = await sealBatch(ctx, orgId, rounds.get(orgId));
        rounds.delete(orgId);
        if (!left) continue;
        rounds.set(orgId, left);
        more = true;
      } catch (error) {
        failed.set(orgId, error);
      }
    }
  }
  return [...failed].map(([orgId, error]) => ({ orgId, error }));
}

/** Returns what is left of the round; undefined also while another process is at it. */
async function sealBatch(ctx: SealContext, orgId: string, round?: Round): Promise<Round | undefined> {
  const sealed = await inTransaction(ctx.pool, async (tx) => {
    const chain = await lockChain(tx, orgId);
    if (!chain) return undefined;
    await checkEnd(ctx, tx, orgId, chain);
    return seal(ctx, tx, orgId, chain, round);
  });
  if (!sealed) return undefined;
  const { left, end } = sealed;
  if (end.link) ctx.eventHeads.note(orgId, { seq: end.seq, link: end.link });
  return left;
}

/**
 * Seals all that is committed, for who holds the chain until the transaction ends. Returns where the log ends then. Throws
 * BrokenLog.
 */
export async function sealAll(ctx: SealContext, tx: Sql, orgId: string, locked: Chain): Promise<Chain> {
  await checkKnown(tx, ctx.eventKeys());
  await checkEnd(ctx, tx, orgId, locked);
  let chain = locked;
  let round: Round | undefined;
  do {
    const { left, end } = await seal(ctx, tx, orgId, chain, round);
    chain = end;
    round = left;
  } while (round);
  return chain;
}

async function seal(
  ctx: SealContext,
  tx: Sql,
  orgId: string,
  chain: Chain,
  round: Round | undefined,
): Promise<{ left: Round | undefined; end: Chain }> {
  const { events, left } = await readUnsealed(tx, orgId, round, { limit: BATCH });
  const keys = ctx.eventKeys();
  const replaced = chain.key_id === keys.current.id ? null : chain.key_id;
  if (events.length === 0 && replaced === null) return { left: undefined, end: chain };
  // Not before they were read: a key is noted before anything is marked with it.
  await checkKnown(tx, keys);
  await checkNewest(tx, keys);
  const at = ctx.now();
  let { seq, link } = { seq: chain.seq, link: chain.link ?? originOf(orgId) };
  const entries = events.map((event): NewEntry => {
    const { place, mark } = event;
    const leaf = event.leaf ?? leafOf(event);
    const unmarked = mark === null || !keys.isMarked(leaf, mark, at);
    const entry = { seq: (seq += 1), event_id: event.id, occurred_at: event.occurred_at, leaf, unmarked };
    link = linkOf(link, entry);
    return { place, ...entry, link };
  });
  await appendEntries(tx, orgId, entries);
  if (chain.key_id !== keys.current.id) await keepPublicKey(tx, keys.current, at);
  if (replaced !== null) {
    await signAnew(tx, keys, orgId, replaced);
    await noteNewKey(tx, orgId, replaced, keys.current.id, at);
  }
  const marked_from = chain.marked_from ?? entries.find(({ unmarked }) => !unmarked)?.seq ?? null;
  const end = signPlace(keys, { org_id: orgId, seq, link, at, marked_from });
  await writeEnd(tx, end, entries.length > 0 && isTime(await latestCheckpoint(tx, orgId), seq, at));
  await announceLog(tx, orgId);
  return { left, end: { ...chain, ...end } };
}

/** It is in the log behind what the new key signed first. */
async function noteNewKey(tx: Sql, orgId: string, before: string, after: string, at: Instant): Promise<void> {
  await recordEvent(tx, {
    ...{ orgId, type: 'event_key_rotated', actor: LOG, resourceId: null, at },
    payload: { key_id: after, previous_key_id: before },
  });
}

function isTime(latest: { seq: number; at: Instant } | undefined, seq: number, at: Instant): boolean {
  if (!latest || seq - latest.seq >= ENTRIES_PER_CHECKPOINT) return true;
  const passed = microsOf(at) - microsOf(latest.at);
  // A clock that was set back must not keep checkpoints away.
  return passed >= MICROS_PER_CHECKPOINT || passed < 0n;
}
