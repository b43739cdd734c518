import type { Context } from '../context.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import type { Caller } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { addMillis } from '../lib/instant.js';
import type { Keyed } from './keyed.js';
import { claimKey, getStored, storeAnswer, type Stored } from './queries.js';

/** How long an answer can be repeated. */
export const KEEP_MS = 24 * 60 * 60 * 1000;

/**
 * Runs the work of a write that a caller asked for in one transaction; see `inTransaction`. What it returns is the
 * answer. Under an idempotency key the key, the work and the answer commit together, so that whatever is cut off, the
 * work is never done twice and its answer never lost. A refusal leaves nothing: the next request is the first again.
 */
export async function inWrite<T>(
  ctx: Context,
  { orgId, keyed }: Caller,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return inTransaction(ctx.pool, async (tx) => {
    if (!keyed) return work(tx);
    const at = ctx.now();
    if (await claimKey(tx, orgId, keyed, at, addMillis(at, -KEEP_MS))) {
      const answer = await work(tx);
      await storeAnswer(tx, orgId, keyed, answer, !keyed.waits);
      return answer;
    }
    // The attempt to claim it has locked the row: it is still there.
    const stored = (await getStored(tx, orgId, keyed.key))!;
    if (!isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
    keyed.settled = stored.final;
    keyed.replayed();
    return stored.answer as T;
  });
}

/** Stores what became of a write whose caller waited for it. Returns the answer that all its repetitions get. */
export async function settle<T>(ctx: Context, { orgId, keyed }: Caller, answer: T): Promise<T> {
  if (!keyed) return answer;
  if (await storeAnswer(ctx.pool, orgId, keyed, answer, true)) return answer;
  const stored = await getStored(ctx.pool, orgId, keyed.key);
  return stored && isSameRequest(stored, keyed) ? (stored.answer as T) : answer;
}

export function isSameRequest({ fingerprint }: Stored, { fingerprints }: Keyed): boolean {
  return fingerprints.some((each) => each.equals(fingerprint));
}
