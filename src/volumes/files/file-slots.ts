import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import type { Shared } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { watchClient } from '../../http/watched-client.js';
import { ReclaimedSlots } from '../../fairness/reclaimed-slots.js';

/** Each list holds up to 50,000 entries in memory; the others hold descriptors and half a MiB. */
export const FILE_SLOTS = {
  list: { total: 8, each: 2 },
  work: { total: 128, each: 32 },
};
const WAITING = { total: 1_000, each: 100 };

type FileSlotKind = keyof typeof FILE_SLOTS;

/**
 * Waits for a slot, which the request holds until its connection is done with it. The signal aborts when nobody needs
 * the result.
 */
export type EnterFiles = (
  kind: FileSlotKind,
  request: FastifyRequest,
  reply: FastifyReply,
) => Promise<AbortSignal>;

export function makeFileSlots({ settings, stopping }: Shared): EnterFiles {
  const queueOf = (kind: FileSlotKind) =>
    new ReclaimedSlots({
      ...FILE_SLOTS[kind],
      waiting: WAITING,
      maxWaitMs: settings.filePatienceMs,
      idleMs: settings.fileIdleMs,
    });
  const queues = { list: queueOf('list'), work: queueOf('work') };

  return async (kind, request, reply) => {
    const client = watchClient(request, reply, stopping);
    const release = await queues[kind].acquire(callerOf(request).orgId, client);
    if (!release) {
      throw new ApiError(
        'rate_limited',
        'too many operations on files are under way: try again later',
        null,
        {
          headers: { 'retry-after': '2' },
        },
      );
    }
    if (client.gone.aborted) release();
    else client.gone.addEventListener('abort', release, { once: true });
    return client.abandoned;
  };
}
