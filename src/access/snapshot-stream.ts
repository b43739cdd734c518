import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { Shared } from '../context.js';
import { ReaderGone, streamSnapshot, type StreamOptions } from '../db/stream.js';
import type { Transaction } from '../db/transaction.js';
import { endAdmission } from '../http/admission.js';
import { ApiError } from '../http/errors.js';
import { watchReader } from '../http/slow-reader.js';
import { ReclaimedSlots } from '../fairness/reclaimed-slots.js';
import { callerOf } from './caller.js';
import { contextOf } from './request-context.js';

/** Streams the text that `produce` yields from one snapshot. An error before the first text becomes the response. */
export type StreamSnapshot = (
  request: FastifyRequest,
  reply: FastifyReply,
  produce: (tx: Transaction) => AsyncIterable<string>,
) => Promise<Readable>;

/** The cost of the transactions and statements before the first text. */
const BEGIN_UNITS = 10;
/** A text is charged a millisecond at most for so many bytes. It may also have waited for the database. */
const BYTES_OF_MS = 8 * 1024;

/**
 * Makes the streamer of one kind of response. Each stream holds a database connection, so `total` of them run at once,
 * half of them for one organization. An idle reader is cut off while others wait. `content`: for messages, such as
 * `usage`.
 */
export function makeSnapshotStreamer(
  { settings, pace }: Shared,
  {
    total,
    content,
    beforeSnapshot,
  }: { total: number; content: string } & Pick<StreamOptions, 'beforeSnapshot'>,
): StreamSnapshot {
  const queue = new ReclaimedSlots({
    total,
    each: Math.ceil(total / 2),
    waiting: { total: 1_000, each: 200 },
    maxWaitMs: settings.usagePatienceMs,
    idleMs: settings.usageIdleMs,
  });

  return async (request, reply, produce) => {
    const { orgId } = callerOf(request);
    const reader = watchReader(request, reply, {
      stallMs: settings.usageStallMs,
      limitMs: settings.usageLimitMs,
    });
    endAdmission(request);
    const release = await queue.acquire(orgId, reader);
    if (!release) {
      throw new ApiError('rate_limited', `too much ${content} is being read: try again later`, null, {
        headers: { 'retry-after': '5' },
      });
    }
    const onEnd = (error?: unknown) => {
      release();
      if (error === undefined || error instanceof ApiError) return;
      request.log.error({ err: error, orgId, content }, 'reading a stream failed');
    };
    const onBreak = () => {
      if (reply.raw.headersSent) reader.cutOff();
    };
    try {
      return await request.admission!.more(BEGIN_UNITS, () =>
        streamSnapshot(
          contextOf(request).pool,
          { beforeSnapshot, gone: reader.gone, onBreak, onEnd },
          async function* (tx) {
            let begun = performance.now();
            for await (const text of produce(tx)) {
              const millis = performance.now() - begun;
              yield text;
              await pace.rest(orgId, Math.min(millis, text.length / BYTES_OF_MS), reader.gone);
              begun = performance.now();
            }
          },
        ),
      );
    } catch (error) {
      // A refused admission has begun nothing that would end.
      release();
      // The client does not receive this error, but the log must not show an internal one.
      if (error instanceof ReaderGone) throw new ApiError('request_timeout', 'the client has left');
      throw error;
    }
  };
}
