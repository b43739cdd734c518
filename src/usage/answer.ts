import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { Context } from '../context.js';
import { streamSnapshot } from '../db/stream.js';
import type { Transaction } from '../db/transaction.js';
import { preferredType } from '../http/accept.js';
import { callerOf } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { makeTurns } from '../lib/turns.js';
import type { Format } from './queries.js';

const FORMATS: Record<string, Format> = { 'application/json': 'json', 'text/csv': 'csv' };
/** How long a request waits for its turn, in milliseconds. */
const PATIENCE_MS = 10_000;

export type Answer = (
  request: FastifyRequest,
  reply: FastifyReply,
  produce: (tx: Transaction, format: Format) => AsyncIterable<string>,
) => Promise<Readable>;

/**
 * Sends usage as it is read, JSON or CSV as the caller asks. Each answer under way has a database connection, so there are few of
 * them at a time, and of one organization fewer.
 */
export function makeAnswer(ctx: Context): Answer {
  const { maxUsageStreams, usageStallMs } = ctx.settings;
  const turns = makeTurns({ total: maxUsageStreams, each: Math.ceil(maxUsageStreams / 2) });

  return async (request, reply, produce) => {
    const { orgId } = callerOf(request);
    const type = preferredType(request.headers.accept, ['application/json', 'text/csv']);
    const leave = await turns.take(orgId, PATIENCE_MS);
    if (!leave) {
      throw new ApiError('rate_limited', 'too much usage is being read: try again later', null, {
        headers: { 'retry-after': '5' },
      });
    }
    const onEnd = (error?: unknown) => {
      leave();
      if (error !== undefined) request.log.error({ err: error, orgId }, 'reading usage failed');
    };
    const text = await streamSnapshot(ctx.pool, { stallMs: usageStallMs, onEnd }, (tx) =>
      produce(tx, FORMATS[type]!),
    );
    void reply.header('vary', 'accept').type(`${type}; charset=utf-8`);
    return text;
  };
}
