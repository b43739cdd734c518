import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Shared } from '../context.js';
import { ReclaimedSlots } from '../fairness/reclaimed-slots.js';
import type { SlotLimits } from '../fairness/slots.js';
import { ApiError } from '../http/errors.js';
import { watchClient } from '../http/watched-client.js';
import { callerOf } from './caller.js';

interface TransferLimits extends SlotLimits {
  waiting: SlotLimits;
  /** Whether an organization with several slots loses one to an organization without, also when it is not idle. */
  isShared?: boolean;
  message: string;
  retryAfterSecs: number;
}

/**
 * Waits for a slot, which the request holds until its connection is done with it. The signal aborts when nobody needs
 * the result.
 */
export type EnterTransfer = (request: FastifyRequest, reply: FastifyReply) => Promise<AbortSignal>;

/**
 * Slots of organizations for downloads and uploads. A client that does not move bytes loses its slot to a waiting one.
 * The message refuses a request that nobody gives a slot in time.
 */
export function makeTransferSlots(
  { settings, stopping }: Pick<Shared, 'settings' | 'stopping'>,
  { isShared = false, message, retryAfterSecs, ...limits }: TransferLimits,
): EnterTransfer {
  const queue = new ReclaimedSlots({
    ...limits,
    maxWaitMs: settings.filePatienceMs,
    idleMs: settings.fileIdleMs,
    ...(isShared && { shareAfterMs: settings.fileIdleMs }),
  });
  return async (request, reply) => {
    const client = watchClient(request, reply, stopping);
    const release = await queue.acquire(callerOf(request).orgId, client);
    if (!release) {
      throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': `${retryAfterSecs}` } });
    }
    if (client.gone.aborted) release();
    else client.gone.addEventListener('abort', release, { once: true });
    return client.abandoned;
  };
}
