import type { FastifyReply } from 'fastify';
import { isNarrowed } from '../../access/access.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { endAdmission } from '../../http/admission.js';
import { ApiError, badParameter } from '../../http/errors.js';
import { isOfSdk } from '../../http/official-sdk.js';
import { whenOver } from '../../http/when-over.js';
import type { Writer } from '../../idempotency/keyed.js';
import { settle } from '../../idempotency/write.js';
import { addMillis, type Instant } from '../../lib/instant.js';
import { Slots } from '../../fairness/slots.js';
import type { Settings } from '../../settings.js';
import { extendWanted } from '../../runs/queries.js';
import { giveUpStart } from '../placement/give-up.js';
import { getSandbox, lockSandbox } from '../queries.js';
import { presentSandbox, type SandboxResponse } from '../row.js';

/** A fallback: notifications wake all waiters, and so does a new notification connection. */
const LOOK_EVERY_MS = 15_000;

export interface WaitQuery {
  wait_for?: 'running' | 'stopped' | 'paused';
  wait_timeout?: number;
}

/**
 * Holds requests until their sandbox settles. Bounded, because each request costs a connection and memory. An
 * organization gets half of the slots.
 */
export class Waiters {
  private readonly limit: Slots;

  constructor({ maxWaiters }: Pick<Settings, 'maxWaiters'>) {
    this.limit = new Slots({ total: maxWaiters, each: Math.ceil(maxWaiters / 2) });
  }

  /**
   * Runs `operation`, and waits for its sandbox if the request asks for it. A request without a free slot is refused
   * before `operation`, which gets the end of a wait for `running`: nobody wants the start after it.
   */
  async hold(
    ctx: Context,
    caller: Writer,
    query: WaitQuery,
    reply: FastifyReply,
    operation: (wantedUntil: Instant | null) => Promise<SandboxResponse>,
  ): Promise<SandboxResponse> {
    if (query.wait_for === undefined) {
      if (query.wait_timeout === undefined) return operation(null);
      throw badParameter('wait_timeout', 'wait_timeout is valid only with wait_for');
    }
    const release = this.limit.acquire(caller.orgId);
    if (!release) {
      throw new ApiError(
        'rate_limited',
        'too many requests are waiting for sandboxes: poll, or try again',
        null,
        {
          headers: { 'retry-after': '1' },
        },
      );
    }
    const gone = new AbortController();
    whenOver(reply, () => gone.abort());
    try {
      const millis = Math.min((query.wait_timeout ?? Infinity) * 1000, ctx.settings.waitBudgetMs);
      const wantedUntil = query.wait_for === 'running' ? addMillis(ctx.now(), millis) : null;
      const sandbox = await operation(wantedUntil);
      if (caller.keyed?.settled) return sandbox;
      if (caller.keyed?.isReplay && wantedUntil) await extend(ctx, caller, sandbox.id, wantedUntil);
      endAdmission(reply.request);
      const awaited = await wait(ctx, caller, sandbox, { ...query, millis }, gone.signal);
      const { pending } = awaited;
      let { answer } = awaited;
      // A cut-off caller has no answer yet, so its retry waits again.
      const cutOff = pending && (gone.signal.aborted || ctx.stopping.aborted);
      if (cutOff && ctx.stopping.aborted) void reply.header('retry-after', '1');
      if (cutOff) return answer;
      if (pending && wantedUntil) answer = await endWait(ctx, caller, answer, reply);
      return await settle(ctx, caller, answer);
    } finally {
      release();
    }
  }
}

/**
 * The wait of a caller is over, and the caller is there to read the answer. A start without room continues, because the
 * caller can now poll or stop it. An official SDK fails a create or start that is not running now, whatever the answer
 * says: its start ends, and the answer has the reason.
 */
async function endWait(
  ctx: Context,
  caller: Writer,
  answer: SandboxResponse,
  { request }: FastifyReply,
): Promise<SandboxResponse> {
  const { orgId, access } = caller;
  if (!isOfSdk(request)) {
    await extend(ctx, caller, answer.id, null);
    return answer;
  }
  await giveUpStart(ctx, { orgId, sandboxId: answer.id, requiredLabels: access.labels });
  const row = await getSandbox(ctx.pool, orgId, { id: answer.id, requiredLabels: access.labels });
  return row ? presentSandbox(row, access) : answer;
}

/** The sandbox of an earlier answer may have lost the labels of the key since. The lock keeps those that it has. */
async function extend(
  ctx: Context,
  { orgId, access }: Writer,
  id: string,
  until: Instant | null,
): Promise<void> {
  if (!isNarrowed(access)) return extendWanted(ctx.pool, orgId, id, until);
  await inTransaction(ctx.pool, async (tx) => {
    const sandbox = await lockSandbox(tx, orgId, { id, requiredLabels: access.labels });
    if (sandbox) await extendWanted(tx, orgId, id, until);
  });
}

/**
 * Waits until the sandbox settles, the time is up, the client has left, or the service stops. Returns its current
 * state.
 */
async function wait(
  ctx: Context,
  { orgId, access }: Writer,
  sandbox: SandboxResponse,
  { wait_for, millis }: WaitQuery & { millis: number },
  gone: AbortSignal,
): Promise<{ answer: SandboxResponse; pending: boolean }> {
  // On Node 20 the garbage collector drops an AbortSignal.timeout inside AbortSignal.any.
  const over = new AbortController();
  const budgetEnds = setTimeout(() => over.abort(), millis);
  const ends = AbortSignal.any([gone, ctx.stopping, over.signal]);
  let wake: () => void = () => undefined;
  let unseen = false;
  const unsubscribe = ctx.changes.subscribe(sandbox.id, () => {
    unseen = true;
    wake();
  });
  let latest = sandbox;
  try {
    for (;;) {
      if (gone.aborted) return { answer: latest, pending: true };
      unseen = false;
      const row = await getSandbox(ctx.pool, orgId, { id: sandbox.id, requiredLabels: access.labels });
      if (!row) {
        const doing = { running: 'starting', stopped: 'stopping', paused: 'being paused' }[
          wait_for ?? 'running'
        ];
        throw new ApiError('sandbox_not_found', `the sandbox was deleted while it was ${doing}`);
      }
      const pending =
        wait_for !== 'running' ? row.status === 'stopping' : row.status === 'starting' || row.will_start;
      latest = presentSandbox(row, access);
      if (!pending || ends.aborted) return { answer: latest, pending };
      if (unseen) continue;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => wake(), LOOK_EVERY_MS);
        wake = () => {
          clearTimeout(timer);
          ends.removeEventListener('abort', wake);
          resolve();
        };
        ends.addEventListener('abort', wake, { once: true });
      });
    }
  } catch (error) {
    // A service that stops closes its connections to the database.
    if (error instanceof ApiError || !ctx.stopping.aborted) throw error;
    return { answer: latest, pending: true };
  } finally {
    clearTimeout(budgetEnds);
    unsubscribe();
  }
}
