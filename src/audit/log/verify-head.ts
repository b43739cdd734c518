import type { Sql } from '../../db/pool.js';
import type { EventKeys } from '../events/event-keys.js';
import { lastRecordedPosition, linkAt, type ChainHead } from './chain-queries.js';
import { checkSignature } from './checkpoint.js';
import { newestKeyId, unknownKeyIds } from './key-queries.js';
import type { SealContext } from './seal-context.js';

/** The log must not be appended to: a new signature would make the manipulated tables valid. */
export class BrokenLog extends Error {}

/**
 * Throws BrokenLog when another process uses unknown keys: each of the two would take the events of the other for
 * forged.
 */
export async function requireKnownKeys(sql: Sql, keys: EventKeys): Promise<void> {
  const unknown = await unknownKeyIds(sql, keys.known);
  if (unknown.length === 0) return;
  throw new BrokenLog(`the event log uses the key ${unknown.join(' and ')}, which is unknown here`);
}

/** Throws BrokenLog. Two processes with the same keys in another order would each sign every log again, in turns. */
export async function requireNewestKey(sql: Sql, { current }: EventKeys): Promise<void> {
  const newest = await newestKeyId(sql);
  if (newest === undefined || newest === current.id) return;
  throw new BrokenLog(
    `the first event key is ${current.id}, but ${newest} is newer: put the newest key first`,
  );
}

/**
 * Throws BrokenLog unless the signature, the tables and the heads that this machine has seen agree. The caller holds
 * the lock.
 */
export async function verifyHead(ctx: SealContext, tx: Sql, orgId: string, head: ChainHead): Promise<void> {
  const last = await lastRecordedPosition(tx, orgId);
  const { seq, link, at, marked_from, key_id, signature } = head;
  const agrees = last ? last.seq === seq && last.link.equals(link ?? Buffer.alloc(0)) : seq === 0;
  if (!agrees) {
    throw new BrokenLog(`the last entry is ${last?.seq ?? 0}, but the signed head is at entry ${seq}`);
  }
  if (link && at && key_id !== null && signature) {
    const checkpoint = { org_id: orgId, seq, link, at, marked_from, key_id, signature };
    const fault = checkSignature(checkpoint, ctx.eventKeys().known);
    if (fault) throw new BrokenLog(fault.sentence);
  }
  const seen = ctx.seenHeads.get(orgId);
  if (!seen) return;
  if (seen.seq > seq) {
    throw new BrokenLog(`the log ends at entry ${seq}, but this machine has seen entry ${seen.seq}`);
  }
  const linkThen = seen.seq === seq ? link : await linkAt(tx, orgId, seen.seq);
  if (linkThen && !linkThen.equals(seen.link)) {
    throw new BrokenLog(`entry ${seen.seq} differs from the entry that this machine has seen`);
  }
}
