import type { Context } from '../context.js';
import { longEventBytes } from '../audit/events/long-events.js';
import { isUnreachable, violatedConstraint } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { WriteBatch } from '../db/write-batch.js';
import { ApiError } from '../http/errors.js';
import { withWarnings } from '../http/warnings.js';
import { addMillis } from '../lib/instant.js';
import type { Keyed, Writer } from './keyed.js';
import { deleteKey, getStored, insertAnswer, KEY_CONSTRAINT, storeAnswer, type Stored } from './queries.js';
import { hasNoRoom, refuseToStore } from './stored-answers.js';

/** How long a response is stored, in milliseconds. */
export const KEEP_MS = 24 * 60 * 60 * 1000;

/** A second attempt is needed if the key has expired, or expires meanwhile. */
const ATTEMPTS = 3;

/**
 * Executes a write in one transaction. `work` returns the response, and its statements in `writes` are sent together at
 * the end. `kept`: the part of the response that is stored.
 * Under an idempotency key, the key, the effects and the response commit together. A crash thus neither repeats the
 * write nor loses its response. A refusal is not stored.
 * The key is inserted last. A retry executes the work too, fails at the insert or earlier, and then reads the stored
 * response. The first request, by far the most frequent one, thus needs no lookup. `work` must have no effect outside
 * of the transaction.
 */
export async function inWrite<T>(
  ctx: Context,
  { orgId, keyed }: Writer,
  work: (tx: Transaction, batch: WriteBatch) => Promise<T>,
  kept: (answer: T) => T = (answer) => answer,
): Promise<T> {
  // An earlier answer is given all the same.
  if (keyed && (await hasNoRoom(ctx, orgId)))
    return ((await replay<T>(ctx, orgId, keyed)) ?? refuseToStore()).answer;
  for (let attempt = 1; ; attempt += 1) {
    const at = ctx.now();
    try {
      let longBytes = 0;
      const done = await inTransaction(ctx.pool, async (tx) => {
        const batch = new WriteBatch(tx);
        const answer = await work(tx, batch);
        longBytes = longEventBytes(tx, batch);
        ctx.longEvents.check(orgId, longBytes);
        if (keyed) {
          const stored = withWarnings(kept(answer), keyed.warnings);
          const length = await insertAnswer(batch, orgId, keyed, stored, { at, final: !keyed.waits });
          ctx.storedAnswers.add(orgId, length);
        }
        await batch.send();
        return answer;
      });
      ctx.longEvents.add(orgId, longBytes);
      return done;
    } catch (error) {
      if (!keyed || isUnreachable(error)) throw error;
      const replayed = await replay<T>(ctx, orgId, keyed);
      if (replayed) return replayed.answer;
      if (violatedConstraint(error) !== KEY_CONSTRAINT || attempt === ATTEMPTS) throw error;
      await deleteKey(ctx.pool, orgId, keyed.key, addMillis(at, -KEEP_MS));
    }
  }
}

/** The stored answer of an earlier request. Undefined: there is none, or it has expired. */
async function replay<T>(ctx: Context, orgId: string, keyed: Keyed): Promise<{ answer: T } | undefined> {
  const stored = await getStored(ctx.pool, orgId, keyed.key);
  if (!stored || stored.created_at <= addMillis(ctx.now(), -KEEP_MS)) return undefined;
  if (!isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
  keyed.settled = stored.final;
  keyed.replayed();
  return { answer: stored.answer as T };
}

/** Stores the final response after a wait. Returns the response that all retries get. */
export async function settle<T>(ctx: Context, { orgId, keyed }: Writer, answer: T): Promise<T> {
  if (!keyed) return answer;
  const answerWithWarnings = withWarnings(answer, keyed.warnings);
  if (await storeAnswer(ctx.pool, orgId, keyed, answerWithWarnings, true)) return answer;
  const stored = await getStored(ctx.pool, orgId, keyed.key);
  return stored && isSameRequest(stored, keyed) ? (stored.answer as T) : answer;
}

export function isSameRequest({ fingerprint }: Stored, { fingerprints }: Keyed): boolean {
  return fingerprints.some((each) => each.equals(fingerprint));
}
