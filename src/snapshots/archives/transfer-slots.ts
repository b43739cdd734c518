import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import type { Shared } from '../../context.js';
import { ReclaimedSlots } from '../../fairness/reclaimed-slots.js';
import { ApiError } from '../../http/errors.js';
import { watchClient } from '../../http/watched-client.js';

/** The engine or the service keeps the archive of each on its disk, and reads it as fast as the client takes it. */
export const TRANSFERS = { total: 4, each: 2 };
const WAITING = { total: 200, each: 20 };

/**
 * Waits for a slot, which the request holds until its connection is done with it. The signal aborts when nobody needs
 * it.
 */
type EnterTransfer = (request: FastifyRequest, reply: FastifyReply) => Promise<AbortSignal>;

export function makeTransferSlots({ settings, stopping }: Shared): EnterTransfer {
  const queue = new ReclaimedSlots({
    ...TRANSFERS,
    waiting: WAITING,
    maxWaitMs: settings.filePatienceMs,
    idleMs: settings.fileIdleMs,
  });
  return async (request, reply) => {
    const client = watchClient(request, reply, stopping);
    const release = await queue.acquire(callerOf(request).orgId, client);
    if (!release) {
      throw new ApiError(
        'rate_limited',
        'too many exports and imports of snapshots are under way: try again later',
        null,
        { headers: { 'retry-after': '10' } },
      );
    }
    if (client.gone.aborted) release();
    else client.gone.addEventListener('abort', release, { once: true });
    return client.abandoned;
  };
}
