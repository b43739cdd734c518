import type { IncomingMessage } from 'node:http';

const REST_MS = 5;

/**
 * Reads the rest of a refused body, and drops it: a client may read the answer only when it has sent everything. It
 * rests after each chunk of at most 64 KiB, because Node would read megabytes in one iteration of the event loop.
 */
export function dropBody(body: IncomingMessage): void {
  if (body.complete) return;
  body.on('error', () => undefined);
  body.on('data', () => {
    body.pause();
    setTimeout(() => body.resume(), REST_MS).unref();
  });
  body.resume();
}
