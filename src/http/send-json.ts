import type { FastifyReply } from 'fastify';

/**
 * Sends what is JSON text already: it is not run through the schema of the route, so whoever made it vouches for its fields. Of a page
 * of 20 sandboxes, parsing what the database has and writing it down again took two fifths of the time.
 */
export function sendJson(reply: FastifyReply, text: string): FastifyReply {
  return reply.type('application/json; charset=utf-8').send(text.length > LONG ? Buffer.from(text) : text);
}

/** As bytes a page of 100 events (42 KB) or 20 sandboxes (60 KB) takes 4 % less of all that it takes, one sandbox 4 % more. */
const LONG = 16 * 1024;
