import type { Sql } from '../../db/pool.js';
import type { EventKeys } from '../events/event-keys.js';
import { lastKnownPlace, linkAt, newestKey, otherKeys, type Chain } from './chain-queries.js';
import { checkSignature } from './checkpoint.js';
import type { SealContext } from './seal-context.js';

/** Nobody must sign what goes on from here: it would make good what somebody did to the tables. */
export class BrokenLog extends Error {}

/** Throws BrokenLog when others sign and mark, whose keys are not known here: what one wrote the other would take for tampering. */
export async function checkKnown(sql: Sql, keys: EventKeys): Promise<void> {
  const others = await otherKeys(sql, keys.known);
  if (others.length === 0) return;
  throw new BrokenLog(
    `the log is written under ${others.join(' and ')}, which is not among the keys that are known here`,
  );
}

/**
 * Throws BrokenLog unless the first of these keys is the one that was noted last. Two processes that have the same keys in another
 * order would each take the other's for replaced, and sign every log anew in turns.
 */
export async function checkNewest(sql: Sql, { current }: EventKeys): Promise<void> {
  const newest = await newestKey(sql);
  if (newest === undefined || newest === current.id) return;
  throw new BrokenLog(
    `the key ${newest} came after ${current.id}, which is the first here: the newest goes first`,
  );
}

/**
 * Throws BrokenLog unless the chain ends in what was signed, and in what this machine saw of it. For who holds the chain, before
 * anything is put behind its end.
 */
export async function checkEnd(ctx: SealContext, tx: Sql, orgId: string, chain: Chain): Promise<void> {
  const last = await lastKnownPlace(tx, orgId);
  const { seq, link, at, marked_from, key_id, signature } = chain;
  const same = last ? last.seq === seq && last.link.equals(link ?? Buffer.alloc(0)) : seq === 0;
  if (!same) throw new BrokenLog(`the log goes to entry ${last?.seq ?? 0}, and its end is signed at ${seq}`);
  if (link && at && key_id !== null && signature) {
    const wrong = checkSignature(
      { org_id: orgId, seq, link, at, marked_from, key_id, signature },
      ctx.eventKeys().known,
    );
    if (wrong !== undefined) throw new BrokenLog(wrong.sentence);
  }
  const head = ctx.eventHeads.get(orgId);
  if (!head) return;
  if (head.seq > seq) {
    throw new BrokenLog(`the log ends at entry ${seq}, and this machine has seen entry ${head.seq}`);
  }
  const before = head.seq === seq ? link : await linkAt(tx, orgId, head.seq);
  if (before && !before.equals(head.link)) {
    throw new BrokenLog(`the log up to entry ${head.seq} is not the one that this machine has seen`);
  }
}
