import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import type { Context } from '../context.js';
import { ReaderGone, streamSnapshot } from '../db/stream.js';
import type { Transaction } from '../db/transaction.js';
import { preferredType } from '../http/accept.js';
import { callerOf } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { watchReader } from '../http/reader.js';
import { makeTurns } from '../lib/turns.js';
import type { Format } from './queries.js';

const FORMATS: Record<string, Format> = { 'application/json': 'json', 'text/csv': 'csv' };

export type Answer = (
  request: FastifyRequest,
  reply: FastifyReply,
  produce: (tx: Transaction, format: Format) => AsyncIterable<string>,
) => Promise<Readable>;

/** Says in the headers that usage is sent as JSON or CSV, as the caller asks, and returns which. */
export function chooseFormat(request: FastifyRequest, reply: FastifyReply): Format {
  const type = preferredType(request.headers.accept, ['application/json', 'text/csv']);
  void reply.header('vary', 'accept').type(`${type}; charset=utf-8`);
  return FORMATS[type]!;
}

/**
 * Sends usage as it is read. Each answer under way has a database connection, so there are few of them at a time, and of one
 * organization fewer; who does not read gives way to who waits.
 */
export function makeAnswer(ctx: Context): Answer {
  const { settings } = ctx;
  const turns = makeTurns({
    places: { total: settings.maxUsageStreams, each: Math.ceil(settings.maxUsageStreams / 2) },
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
      throw new ApiError('rate_limited', 'too much usage is being read: try again later', null, {
        headers: { 'retry-after': '5' },
      });
    }
    const onEnd = (error?: unknown) => {
      leave();
      if (error !== undefined) request.log.error({ err: error, orgId }, 'reading usage failed');
    };
    const onBreak = () => {
      if (reply.raw.headersSent) reader.cutOff();
    };
    try {
      const format = chooseFormat(request, reply);
      return await streamSnapshot(ctx.pool, { gone: reader.gone, onBreak, onEnd }, (tx) =>
        produce(tx, format),
      );
    } catch (error) {
      // Nobody hears it, and nothing is wrong on our side.
      if (error instanceof ReaderGone) throw new ApiError('request_timeout', 'the client has left');
      throw error;
    }
  };
}
