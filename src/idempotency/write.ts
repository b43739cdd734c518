import type { Context } from '../context.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import type { Caller } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { addMillis } from '../lib/instant.js';
import type { Keyed } from './keyed.js';
import { claimKey, getStored, releaseKey, storeAnswer, type Stored } from './queries.js';

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

/** How long work on files that has no answer yet is taken to be under way, in milliseconds. Then it was cut off. */
const UNDER_WAY_MS = 60_000;

/**
 * The same for work that changes files and not the database. No transaction is held for it, as it may take long: the key
 * is claimed before and answered after. So of equal requests at once one is carried out and the others are told to come
 * back, and one that was cut off in between is carried out once more.
 */
export async function inFileWrite<T>(
  ctx: Context,
  { orgId, keyed }: Caller,
  work: () => Promise<T>,
): Promise<T> {
  if (!keyed) return work();
  const at = ctx.now();
  if (!(await claimKey(ctx.pool, orgId, keyed, at, addMillis(at, -KEEP_MS)))) {
    const stored = await getStored(ctx.pool, orgId, keyed.key);
    if (stored && !isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
    if (stored?.final) {
      keyed.replayed();
      return stored.answer as T;
    }
    if (!(await claimKey(ctx.pool, orgId, keyed, at, addMillis(at, -UNDER_WAY_MS)))) {
      const message = 'the first request with this key is still being carried out: ask again';
      throw new ApiError('idempotency_conflict', message, null, { headers: { 'retry-after': '1' } });
    }
  }
  try {
    const answer = await work();
    await storeAnswer(ctx.pool, orgId, keyed, answer, true);
    return answer;
  } catch (error) {
    // A refusal leaves nothing: the next request is the first again.
    await releaseKey(ctx.pool, orgId, keyed);
    throw error;
  }
}

/** Stores what became of a write whose caller waited for it. Returns the answer that all its repetitions get. */
export async function settle<T>(ctx: Context, { orgId, keyed }: Caller, answer: T): Promise<T> {
  if (!keyed) return answer;
  if (await storeAnswer(ctx.pool, orgId, keyed, answer, true)) return answer;
  const stored = await getStored(ctx.pool, orgId, keyed.key);
  return stored && isSameRequest(stored, keyed) ? (stored.answer as T) : answer;
}

function isSameRequest({ fingerprint }: Stored, { fingerprints }: Keyed): boolean {
  return fingerprints.some((each) => each.equals(fingerprint));
}
