import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { ApiError } from './errors.js';
import type { App } from './route.js';
import { validatorCompiler } from './validation.js';

export const Bytes = Type.Unsafe<Readable>({ type: 'string', format: 'binary' });
export const OCTETS = 'application/octet-stream';

/** Registers routes whose body is a file, with any content-type or none. */
export function acceptFiles(app: App, register: (raw: App) => void): void {
  void app.register(async (raw: App) => {
    raw.addHook('onRequest', async (request) => {
      // Fastify refuses a malformed content-type before it selects a parser.
      delete request.headers['content-type'];
      return Promise.resolve();
    });
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser('*', (_request, body, done) => done(null, body));
    raw.setValidatorCompiler((part) =>
      part.httpPart === 'body' ? (value: unknown) => ({ value }) : validatorCompiler(part as never),
    );
    register(raw);
    return Promise.resolve();
  });
}

/** The chunks of a body. `check` sees each one first, and may throw. */
export async function* chunksOf(body: Readable, check: (chunk: Buffer) => void): AsyncIterable<Buffer> {
  try {
    const chunks: AsyncIterable<Buffer> = body.iterator({ destroyOnReturn: false });
    for await (const chunk of chunks) {
      check(chunk);
      yield chunk;
    }
  } catch (error) {
    // The client is gone; an ApiError is not logged as an error.
    if (error === body.errored)
      throw new ApiError('invalid_request', 'the body is incomplete: send it again');
    throw error;
  }
}
