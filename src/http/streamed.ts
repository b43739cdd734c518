import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { Context } from '../context.js';
import { streamSnapshot } from '../db/stream.js';
import type { Transaction } from '../db/transaction.js';
import { makeTurns } from '../lib/turns.js';
import { callerOf } from './auth.js';
import { ApiError } from './errors.js';

/** How long a request waits for its turn, in milliseconds. */
const PATIENCE_MS = 10_000;

/** Sends what `produce` yields as it is read, as the media type `type`. `begin`: what comes first, once it is its turn. */
export type Streamed = (
  request: FastifyRequest,
  reply: FastifyReply,
  type: string,
  produce: (tx: Transaction) => AsyncIterable<string>,
  begin?: () => Promise<void>,
) => Promise<Readable>;

/**
 * Makes the sender of one kind of answers. Each under way has a database connection, so there are `most` of them at a time, and
 * half as many of one organization. `what`: for messages, such as `usage`.
 */
export function makeStreamed(ctx: Context, { most, what }: { most: number; what: string }): Streamed {
  const turns = makeTurns({ total: most, each: Math.ceil(most / 2) });

  return async (request, reply, type, produce, begin) => {
    const { orgId } = callerOf(request);
    const leave = await turns.take(orgId, PATIENCE_MS);
    if (!leave) {
      throw new ApiError('rate_limited', `too much ${what} is being read: try again later`, null, {
        headers: { 'retry-after': '5' },
      });
    }
    const onEnd = (error?: unknown) => {
      leave();
      if (error !== undefined) request.log.error({ err: error, orgId, what }, 'reading a stream failed');
    };
    await begin?.().catch((error: unknown) => {
      leave();
      throw error;
    });
    const { usageStallMs: stallMs } = ctx.settings;
    const text = await streamSnapshot(ctx.pool, { stallMs, onEnd }, produce);
    void reply.header('vary', 'accept').type(`${type}; charset=utf-8`);
    return text;
  };
}
