import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { namesTag } from './entity-tag.js';
import type { App } from './route.js';

const compress = promisify(gzip);

/** Relative to the directory of the document, because a proxy may serve it under a path prefix. */
const SERVERS = [{ url: '.', description: 'The service that serves this document.' }];

interface Served {
  plain: Buffer;
  compressed: Buffer;
  etag: string;
}

/**
 * Serves the OpenAPI document without white space, compressed for clients that accept it, and 304 for one that has it
 * already.
 */
export function serveDocument(app: App): void {
  let made: Promise<Served> | undefined;
  app.get('/openapi.json', { schema: { hide: true } }, async (request, reply) => {
    // The routes are complete at the first request.
    made ??= make(app.swagger());
    const { plain, compressed, etag } = await made;
    void reply
      .header('etag', etag)
      // Clients may keep a copy, and ask each time whether it is current.
      .header('cache-control', 'no-cache')
      .header('vary', 'accept-encoding');
    if (namesTag(request.headers['if-none-match'], etag)) return reply.code(304).send();
    void reply.type('application/json; charset=utf-8');
    if (request.encodings(['gzip', 'identity']) !== 'gzip') return reply.send(plain);
    return reply.header('content-encoding', 'gzip').send(compressed);
  });
}

async function make(document: object): Promise<Served> {
  const plain = Buffer.from(JSON.stringify({ ...document, servers: SERVERS }));
  // Weak: both encodings have it.
  const etag = `W/"${createHash('sha256').update(plain).digest('base64url').slice(0, 22)}"`;
  return { plain, compressed: await compress(plain, { level: 9 }), etag };
}
