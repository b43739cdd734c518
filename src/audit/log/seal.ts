import { announceLog } from '../../db/changes.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import { microsOf, type Instant } from '../../lib/instant.js';
import { LOG } from '../events/actor.js';
import { genesisLink, leafOf, linkOf } from '../events/hash-chain.js';
import { recordEvent } from '../events/record.js';
import { activateKeys } from './activate-keys.js';
import {
  appendEntries,
  latestCheckpoint,
  lockHead,
  orgsSignedByOthers,
  updateHead,
  type ChainHead,
  type NewEntry,
} from './chain-queries.js';
import { signCheckpoint } from './checkpoint.js';
import { insertPublicKey } from './key-queries.js';
import { reSignRetention } from './re-sign.js';
import type { SealContext } from './seal-context.js';
import { deleteUnsealed, orgsWithUnsealed, readUnsealed, type QueueRange } from './unsealed-queries.js';
import { requireKnownKeys, requireNewestKey, verifyHead } from './verify-head.js';

const BATCH = 1_000;
/** A signed head is kept as a checkpoint after so many entries or so much time. */
const ENTRIES_PER_CHECKPOINT = 1_000;
const MICROS_PER_CHECKPOINT = 3_600_000_000n;

export interface SealFailure {
  orgId: string;
  error: unknown;
}

/**
 * Appends committed events to the logs. Writers leave events in a queue and never wait for the sealer; one process at a
 * time seals an organization. Returns the logs that cannot be appended to. Throws BrokenLog when no log can.
 */
export async function sealEvents(ctx: SealContext, signal: AbortSignal): Promise<SealFailure[]> {
  await activateKeys(ctx, ctx.eventKeys(), ctx.now());
  const failures = new Map<string, unknown>();
  const ranges = new Map<string, QueueRange>();
  // Logs without new events are signed again too: a holder of the old key could rewrite them.
  const old = await orgsSignedByOthers(ctx.pool, ctx.eventKeys().current);
  // Organizations take turns by batch, so that the import of one does not delay the others.
  for (let more = true; more && !signal.aborted;) {
    more = false;
    for (const orgId of new Set([...old.splice(0), ...(await orgsWithUnsealed(ctx.pool))])) {
      if (signal.aborted) break;
      if (failures.has(orgId)) continue;
      try {
        const left = await sealBatch(ctx, orgId, ranges.get(orgId));
        ranges.delete(orgId);
        if (!left) continue;
        ranges.set(orgId, left);
        more = true;
      } catch (error) {
        failures.set(orgId, error);
      }
    }
  }
  return [...failures].map(([orgId, error]) => ({ orgId, error }));
}

/** Returns the next range; undefined also while another process seals. */
async function sealBatch(
  ctx: SealContext,
  orgId: string,
  range?: QueueRange,
): Promise<QueueRange | undefined> {
  const sealed = await inTransaction(ctx.pool, async (tx) => {
    const head = await lockHead(tx, orgId);
    if (!head) return undefined;
    await verifyHead(ctx, tx, orgId, head);
    return seal(ctx, tx, orgId, head, range);
  });
  if (!sealed) return undefined;
  const { left, head } = sealed;
  if (head.link) ctx.seenHeads.set(orgId, { seq: head.seq, link: head.link });
  return left;
}

/**
 * Seals all committed events of an organization. Returns the new head. The caller holds the lock of the head. Throws
 * BrokenLog.
 */
export async function sealQueue(
  ctx: SealContext,
  tx: EventSql,
  orgId: string,
  locked: ChainHead,
): Promise<ChainHead> {
  await requireKnownKeys(tx, ctx.eventKeys());
  await verifyHead(ctx, tx, orgId, locked);
  let head = locked;
  let range: QueueRange | undefined;
  do {
    const sealed = await seal(ctx, tx, orgId, head, range);
    head = sealed.head;
    range = sealed.left;
  } while (range);
  return head;
}

async function seal(
  ctx: SealContext,
  tx: EventSql,
  orgId: string,
  head: ChainHead,
  range: QueueRange | undefined,
): Promise<{ left: QueueRange | undefined; head: ChainHead }> {
  const { events, left } = await readUnsealed(tx, orgId, range, { limit: BATCH });
  const keys = ctx.eventKeys();
  const replaced = head.key_id === keys.current.id ? null : head.key_id;
  if (events.length === 0 && replaced === null) return { left: undefined, head };
  // Checked after the read: every key is registered before it marks an event.
  await requireKnownKeys(tx, keys);
  await requireNewestKey(tx, keys);
  const at = ctx.now();
  let { seq, link } = { seq: head.seq, link: head.link ?? genesisLink(orgId) };
  const entries = events.map((event): NewEntry => {
    const leaf = event.leaf ?? leafOf(event);
    const unmarked = event.mark === null || !keys.isMarked(leaf, event.mark, at);
    const entry = { seq: (seq += 1), event_id: event.id, occurred_at: event.occurred_at, leaf, unmarked };
    link = linkOf(link, entry);
    return { ...entry, link };
  });
  await appendEntries(tx, orgId, entries);
  await deleteUnsealed(
    tx,
    orgId,
    events.map(({ place }) => place),
  );
  if (head.key_id !== keys.current.id) await insertPublicKey(tx, keys.current, at);
  if (replaced !== null) {
    await reSignRetention(tx, keys, orgId, replaced);
    await recordRotation(tx, orgId, replaced, keys.current.id, at);
  }
  const marked_from = head.marked_from ?? entries.find(({ unmarked }) => !unmarked)?.seq ?? null;
  const signed = signCheckpoint(keys, { org_id: orgId, seq, link, at, marked_from });
  await updateHead(
    tx,
    signed,
    entries.length > 0 && isCheckpointDue(await latestCheckpoint(tx, orgId), seq, at),
  );
  await announceLog(tx, orgId);
  return { left, head: { ...head, ...signed } };
}

async function recordRotation(
  tx: EventSql,
  orgId: string,
  previous: string,
  current: string,
  at: Instant,
): Promise<void> {
  await recordEvent(tx, {
    orgId,
    type: 'event_key_rotated',
    actor: LOG,
    resourceId: null,
    at,
    payload: { key_id: current, previous_key_id: previous },
  });
}

function isCheckpointDue(
  latest: { seq: number; at: Instant } | undefined,
  seq: number,
  at: Instant,
): boolean {
  if (!latest || seq - latest.seq >= ENTRIES_PER_CHECKPOINT) return true;
  const passed = microsOf(at) - microsOf(latest.at);
  // A clock that was set back must not prevent checkpoints.
  return passed >= MICROS_PER_CHECKPOINT || passed < 0n;
}
