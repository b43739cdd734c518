import type { FastifyReply } from 'fastify';

/** Sends JSON text without the schema of the route, which took two fifths of the time of a page of 20 sandboxes. */
export function sendJson(reply: FastifyReply, text: string | Buffer): FastifyReply {
  return reply.type('application/json; charset=utf-8').send(toBody(text));
}

/** In the form that is sent the fastest. */
export function toBody(text: string | Buffer): string | Buffer {
  return typeof text === 'string' && text.length > LONG ? Buffer.from(text) : text;
}

/**
 * Bytes take 4 % less than text for a page of 100 events (42 KB) or 20 sandboxes (60 KB), and 4 % more for one sandbox.
 */
const LONG = 16 * 1024;
