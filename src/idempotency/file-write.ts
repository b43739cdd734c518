import { randomUUID } from 'node:crypto';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { withWarnings } from '../http/warnings.js';
import { addMillis } from '../lib/instant.js';
import type { Writer } from './keyed.js';
import { answerClaim, claimFileKey, getStored, releaseClaim, renewClaim } from './queries.js';
import { hasNoRoom, refuseToStore } from './stored-answers.js';
import { isSameRequest, KEEP_MS } from './write.js';

/** Whether an earlier request had the key: then this one may get its answer. */
export async function mayRepeat({ pool }: Pick<Context, 'pool'>, { orgId, keyed }: Writer): Promise<boolean> {
  return keyed !== undefined && (await getStored(pool, orgId, keyed.key)) !== undefined;
}

/** A claim that was not renewed for this long has expired, in milliseconds. */
const CLAIM_TIMEOUT_MS = 60_000;
const RENEW_INTERVAL_MS = 15_000;

type FileClaim<T> = { answer: T } | { done: (answer: T) => Promise<void>; failed: () => Promise<void> };

/**
 * Claims the idempotency key of an operation on files. The operation may take long, so it runs outside a transaction.
 * Concurrent equal requests are refused until the first one ends. After a crash in between, a retry executes the
 * operation again.
 */
async function claimFileWrite<T>(ctx: Context, { orgId, keyed }: Writer): Promise<FileClaim<T>> {
  if (!keyed) return { done: async () => Promise.resolve(), failed: async () => Promise.resolve() };
  const { pool, storedAnswers } = ctx;
  // An earlier answer is given all the same.
  if ((await hasNoRoom(ctx, orgId)) && !(await getStored(pool, orgId, keyed.key))) refuseToStore();
  const claim = randomUUID();
  const at = ctx.now();
  const limits = { at, expired: addMillis(at, -KEEP_MS), expiredClaim: addMillis(at, -CLAIM_TIMEOUT_MS) };
  if (!(await claimFileKey(pool, orgId, keyed, claim, limits))) {
    const stored = await getStored(pool, orgId, keyed.key);
    if (stored && !isSameRequest(stored, keyed)) throw new ApiError('idempotency_conflict');
    if (!stored?.final) {
      const message = 'the first request with this key is still being carried out: ask again';
      throw new ApiError('idempotency_conflict', message, null, { headers: { 'retry-after': '1' } });
    }
    keyed.settled = true;
    keyed.replayed();
    const refusal = (stored.answer as Partial<StoredEnd> | null)?.[END];
    if (refusal) throw new ApiError('ended_with_sandbox', refusal.message, refusal.details);
    return { answer: stored.answer as T };
  }
  const renewing = setInterval(() => {
    renewClaim(pool, orgId, keyed.key, claim, ctx.now()).catch((error: unknown) =>
      ctx.log.warn({ err: error }, 'renewing an idempotency key failed'),
    );
  }, RENEW_INTERVAL_MS);
  return {
    done: async (answer) => {
      clearInterval(renewing);
      const stored = withWarnings(answer, keyed.warnings);
      storedAnswers.add(orgId, await answerClaim(pool, orgId, keyed.key, claim, stored));
    },
    // A refusal is not stored, so that a retry executes the request.
    failed: async () => {
      clearInterval(renewing);
      await releaseClaim(pool, orgId, keyed.key, claim);
    },
  };
}

export async function inFileWrite<T>(ctx: Context, caller: Writer, work: () => Promise<T>): Promise<T> {
  const claim = await claimFileWrite<T>(ctx, caller);
  if ('answer' in claim) return claim.answer;
  try {
    const answer = await work();
    await claim.done(answer);
    return answer;
  } catch (error) {
    await settleFailure(claim, error);
    throw error;
  }
}

/** An operation that was cut by the end of its sandbox had begun: a retry must not carry it out a second time. */
async function settleFailure<T>(claim: FileClaim<T>, error: unknown): Promise<void> {
  if (!('done' in claim)) return;
  if (!(error instanceof ApiError) || error.kind !== 'ended_with_sandbox') return claim.failed();
  const { message, details } = error;
  const end: StoredEnd = { [END]: { message, details } };
  await claim.done(end as T);
}

/** No answer of an operation has this field. */
const END = 'idempotency:ended_with_sandbox';
type StoredEnd = Record<typeof END, Pick<ApiError, 'message' | 'details'>>;

/**
 * Executes an upload once for each idempotency key. The fingerprint of the request includes the body, so `work` must
 * call `onReceived` with the digest of the body before it changes anything.
 */
export async function inUpload<T>(
  ctx: Context,
  callerOf: (digest: string) => Writer,
  work: (onReceived: (digest: string) => Promise<void>) => Promise<T>,
): Promise<T> {
  let claim: FileClaim<T> | undefined;
  try {
    const answer = await work(async (digest) => {
      claim = await claimFileWrite<T>(ctx, callerOf(digest));
      if ('answer' in claim) throw new AlreadyAnswered();
    });
    if (claim && 'done' in claim) await claim.done(answer);
    return answer;
  } catch (error) {
    if (error instanceof AlreadyAnswered && claim && 'answer' in claim) return claim.answer;
    if (claim) await settleFailure(claim, error);
    throw error;
  }
}

/** Aborts an upload whose response is stored already. */
class AlreadyAnswered extends Error {}
