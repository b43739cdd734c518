import type { Context } from '../context.js';
import { isUnreachable, violatedConstraint } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { WriteBatch } from '../db/write-batch.js';
import { ApiError } from '../http/errors.js';
import { withWarnings } from '../http/warnings.js';
import { addMillis } from '../lib/instant.js';
import type { Writer } from './keyed.js';
import type { Keyed } from './keyed.js';
import { deleteKey, getStored, insertAnswer, KEY_CONSTRAINT, storeAnswer, type Stored } from './queries.js';

/** How long an answer can be repeated. */
export const KEEP_MS = 24 * 60 * 60 * 1000;

/** For a key that had expired and was not forgotten yet, or that was forgotten while it was looked at. */
const ATTEMPTS = 3;

/**
 * Runs the work of a write that a caller asked for in one transaction; see `inTransaction`. What it returns is the
 * answer. `batch`: its statements are sent together after the work has returned. Under an idempotency key the key, the
 * work and the answer commit together, so that whatever is cut off, the work is never done twice and its answer never lost.
 * A refusal leaves nothing: the next request is the first again.
 *
 * The key is taken last, with the answer: a repetition does the work as well, or is refused for what the first has done, and
 * finds only then that there is an answer already. So the first, which nearly all are, is spared a look. What `work` makes must
 * leave it in its answer alone, so that nothing is handed out that was rolled back. `kept`: what of the answer is stored, and
 * repeated.
 */
export async function inWrite<T>(
  ctx: Context,
  { orgId, keyed }: Writer,
  work: (tx: Transaction, batch: WriteBatch) => Promise<T>,
  kept: (answer: T) => T = (answer) => answer,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const at = ctx.now();
    try {
      return await inTransaction(ctx.pool, async (tx) => {
        const batch = new WriteBatch(tx);
        const answer = await work(tx, batch);
        if (keyed)
          await insertAnswer(batch, orgId, keyed, withWarnings(kept(answer), keyed.warnings), {
            at,
            final: !keyed.waits,
          });
        await batch.send();
        return answer;
      });
    } catch (error) {
      if (!keyed || isUnreachable(error)) throw error;
      const stored = await getStored(ctx.pool, orgId, keyed.key);
      const expired = addMillis(at, -KEEP_MS);
      if (stored && stored.created_at > expired) {
        if (!isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
        keyed.settled = stored.final;
        keyed.replayed();
        return stored.answer as T;
      }
      if (violatedConstraint(error) !== KEY_CONSTRAINT || attempt === ATTEMPTS) throw error;
      await deleteKey(ctx.pool, orgId, keyed.key, expired);
    }
  }
}

/** Stores what became of a write whose caller waited for it. Returns the answer that all its repetitions get. */
export async function settle<T>(ctx: Context, { orgId, keyed }: Writer, answer: T): Promise<T> {
  if (!keyed) return answer;
  const told = withWarnings(answer, keyed.warnings);
  if (await storeAnswer(ctx.pool, orgId, keyed, told, true)) return answer;
  const stored = await getStored(ctx.pool, orgId, keyed.key);
  return stored && isSameRequest(stored, keyed) ? (stored.answer as T) : answer;
}

export function isSameRequest({ fingerprint }: Stored, { fingerprints }: Keyed): boolean {
  return fingerprints.some((each) => each.equals(fingerprint));
}
