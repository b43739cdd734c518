import type { FastifyReply } from 'fastify';

/** The code of the error of a request that is over; null for an answer that its client has received. */
export function errorTypeOf(reply: FastifyReply): string | null {
  return reply.raw.writableFinished ? reply.refusal : 'client_left';
}
