import { toStorable } from '../lib/storable-text.js';
import { limitTime } from '../lib/time-limit.js';
import { findDestination, type Destination, type DestinationPolicy } from './destination.js';
import type { Resolve } from './resolve.js';
import { send } from './send.js';

const STORED_BYTES = 1_024;
/** The connection is closed after this much, counted with interim responses, headers and chunk headers. */
export const MAX_READ_BYTES = 64 * 1_024;

export interface Posted {
  status: number;
  body: string;
  retryAfter: string | undefined;
}

export interface Sender {
  reach: DestinationPolicy;
  resolve: Resolve;
  /** The limit for name resolution, connection, request and response together. */
  timeoutMs: number;
}

/**
 * Posts to an allowed address. The name is resolved once, and the connection uses the checked addresses. Redirects are
 * not followed, and no proxy is used. Rejects with an Error whose message may be shown to the owner of the webhook.
 */
export async function post(
  { reach, resolve, timeoutMs }: Sender,
  target: string,
  headers: Record<string, string>,
  body: string,
  signal?: AbortSignal,
): Promise<Posted> {
  signal?.throwIfAborted();
  // Released at the end: the signal of the service would keep every posted body alive.
  const over = limitTime(timeoutMs, signal, new Error(`no answer within ${timeoutMs / 1000} s`));
  const url = new URL(target);
  const sent = findDestination(url, reach, resolve).then((destination) =>
    exchange(url, destination, headers, body, over.signal),
  );
  // A query to a silent name server cannot be interrupted, so the race abandons it.
  const ended = new Promise<never>((_, reject) => {
    over.signal.addEventListener('abort', () => reject(over.signal.reason as Error), { once: true });
  });
  try {
    return await Promise.race([sent, ended]);
  } catch (error) {
    sent.catch(() => undefined);
    // The reason of the abort explains more than the resulting error.
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    over.release();
  }
}

async function exchange(
  url: URL,
  destination: Destination,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
): Promise<Posted> {
  const response = await send(url, destination, { method: 'POST', headers, body, signal });
  const chunks: Buffer[] = [];
  const { socket } = response;
  for await (const chunk of response) {
    chunks.push(chunk as Buffer);
    // Leaving the loop closes the connection.
    if (socket.bytesRead >= MAX_READ_BYTES) break;
  }
  return {
    status: response.statusCode!,
    body: toStorable(Buffer.concat(chunks).subarray(0, STORED_BYTES).toString('utf8')),
    retryAfter: response.headers['retry-after'],
  };
}
