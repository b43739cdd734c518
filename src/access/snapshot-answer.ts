import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { Shared } from '../context.js';
import { ReaderGone, streamSnapshot, type StreamOptions } from '../db/stream.js';
import type { Transaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { watchReader } from '../http/slow-reader.js';
import { makeTurns } from '../lib/fair-queue.js';
import { callerOf } from './caller.js';
import { contextOf } from './request-context.js';

/** Sends what `produce` yields as it is read, from one snapshot, once it is its turn. What it refuses before that is the answer. */
export type Streamed = (
  request: FastifyRequest,
  reply: FastifyReply,
  produce: (tx: Transaction) => AsyncIterable<string>,
) => Promise<Readable>;

/**
 * Makes the sender of one kind of answers. Each under way has a database connection, so there are `most` of them at a time, and
 * half as many of one organization; who does not read gives way to who waits. `what`: for messages, such as `usage`.
 */
export function makeStreamed(
  { settings }: Shared,
  { most, what, beforeSnapshot }: { most: number; what: string } & Pick<StreamOptions, 'beforeSnapshot'>,
): Streamed {
  const turns = makeTurns({
    places: { total: most, each: Math.ceil(most / 2) },
    waiting: { total: 1_000, each: 200 },
    patienceMs: settings.usagePatienceMs,
    idleMs: settings.usageIdleMs,
  });

  return async (request, reply, produce) => {
    const { orgId } = callerOf(request);
    const reader = watchReader(request, reply, {
      stallMs: settings.usageStallMs,
      limitMs: settings.usageLimitMs,
    });
    const leave = await turns.take(orgId, reader);
    if (!leave) {
      throw new ApiError('rate_limited', `too much ${what} is being read: try again later`, null, {
        headers: { 'retry-after': '5' },
      });
    }
    const onEnd = (error?: unknown) => {
      leave();
      if (error === undefined || error instanceof ApiError) return;
      request.log.error({ err: error, orgId, what }, 'reading a stream failed');
    };
    const onBreak = () => {
      if (reply.raw.headersSent) reader.cutOff();
    };
    try {
      return await streamSnapshot(
        contextOf(request).pool,
        { beforeSnapshot, gone: reader.gone, onBreak, onEnd },
        produce,
      );
    } catch (error) {
      // Nobody hears it, and nothing is wrong on our side.
      if (error instanceof ReaderGone) throw new ApiError('request_timeout', 'the client has left');
      throw error;
    }
  };
}
