import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import { makeSnapshotStreamer } from '../access/snapshot-stream.js';
import type { Shared } from '../context.js';
import type { Transaction } from '../db/transaction.js';
import { preferredType } from '../http/preferred-type.js';
import type { Format } from './queries.js';

const TYPES = ['application/json', 'text/csv'] as const;
const FORMATS: Record<(typeof TYPES)[number], Format> = { 'application/json': 'json', 'text/csv': 'csv' };

export type Answer = (
  request: FastifyRequest,
  reply: FastifyReply,
  produce: (tx: Transaction, format: Format) => AsyncIterable<string>,
  wanted?: Format,
) => Promise<Readable>;

/** `wanted` precedes the header `Accept`. */
export function chooseFormat(request: FastifyRequest, reply: FastifyReply, wanted?: Format): Format {
  const named = TYPES.find((type) => FORMATS[type] === wanted);
  const type = named ?? preferredType(request, TYPES);
  void reply.header('vary', 'accept').type(`${type}; charset=utf-8`);
  return FORMATS[type];
}

export function makeAnswer(ctx: Shared): Answer {
  const streamSnapshot = makeSnapshotStreamer(ctx, { total: ctx.settings.maxUsageStreams, content: 'usage' });
  return (request, reply, produce, wanted) => {
    const format = chooseFormat(request, reply, wanted);
    return streamSnapshot(request, reply, (tx) => produce(tx, format));
  };
}
