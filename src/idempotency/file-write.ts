import { randomUUID } from 'node:crypto';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { withWarnings } from '../http/warnings.js';
import { addMillis } from '../lib/instant.js';
import type { Writer } from './keyed.js';
import { answerClaim, claimFileKey, getStored, releaseClaim, renewClaim } from './queries.js';
import { isSameRequest, KEEP_MS } from './write.js';

/** Work on files that has not been heard of for so long was cut off, in milliseconds. */
const CUT_OFF_MS = 60_000;
const RENEW_EVERY_MS = 15_000;

/** The answer of an earlier request, or a claim to do the work. */
type FileClaim<T> = { answer: T } | { done: (answer: T) => Promise<void>; failed: () => Promise<void> };

/**
 * Claims the idempotency key of work that changes files and not the database. No transaction is held for it, as it may
 * take long: the key is claimed before and answered after. So of equal requests at once one is carried out and the others
 * are told to come back; one that was cut off in between is carried out once more.
 */
async function claimFileWrite<T>(ctx: Context, { orgId, keyed }: Writer): Promise<FileClaim<T>> {
  if (!keyed) return { done: async () => Promise.resolve(), failed: async () => Promise.resolve() };
  const { pool } = ctx;
  const claim = randomUUID();
  const at = ctx.now();
  const limits = { at, expired: addMillis(at, -KEEP_MS), cutOff: addMillis(at, -CUT_OFF_MS) };
  if (!(await claimFileKey(pool, orgId, keyed, claim, limits))) {
    const stored = await getStored(pool, orgId, keyed.key);
    if (stored && !isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
    if (!stored?.final) {
      const message = 'the first request with this key is still being carried out: ask again';
      throw new ApiError('idempotency_conflict', message, null, { headers: { 'retry-after': '1' } });
    }
    keyed.settled = true;
    keyed.replayed();
    return { answer: stored.answer as T };
  }
  const renewing = setInterval(() => {
    renewClaim(pool, orgId, keyed.key, claim, ctx.now()).catch((error: unknown) =>
      ctx.log.warn({ err: error }, 'an idempotency key could not be renewed'),
    );
  }, RENEW_EVERY_MS);
  return {
    done: async (answer) => {
      clearInterval(renewing);
      await answerClaim(pool, orgId, keyed.key, claim, withWarnings(answer, keyed.warnings));
    },
    // A refusal leaves nothing: the next request is the first again.
    failed: async () => {
      clearInterval(renewing);
      await releaseClaim(pool, orgId, keyed.key, claim);
    },
  };
}

/** Does work on files once a key. */
export async function inFileWrite<T>(ctx: Context, caller: Writer, work: () => Promise<T>): Promise<T> {
  const claim = await claimFileWrite<T>(ctx, caller);
  if ('answer' in claim) return claim.answer;
  try {
    const answer = await work();
    await claim.done(answer);
    return answer;
  } catch (error) {
    await claim.failed();
    throw error;
  }
}

/**
 * The same for an upload, which is known as the same only when the whole body has come. `work` is given what it has to
 * call then, with the digest of the body, before anything is changed.
 */
export async function inUpload<T>(
  ctx: Context,
  callerOf: (digest: string) => Writer,
  work: (whole: (digest: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  let claim: FileClaim<T> | undefined;
  try {
    const answer = await work(async (digest) => {
      claim = await claimFileWrite<T>(ctx, callerOf(digest));
      if ('answer' in claim) throw new AnsweredBefore();
    });
    if (claim && 'done' in claim) await claim.done(answer);
    return answer;
  } catch (error) {
    if (error instanceof AnsweredBefore && claim && 'answer' in claim) return claim.answer;
    if (claim && 'failed' in claim) await claim.failed();
    throw error;
  }
}

/** Ends the work on an upload that needs not be done. */
class AnsweredBefore extends Error {}
