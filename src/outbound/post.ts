import { toStorable } from '../lib/storable-text.js';
import type { Destination } from './destination.js';
import { reachInTime, type Sender } from './reach.js';
import { send } from './send.js';

const STORED_BYTES = 1_024;
/** The connection is closed after this much, counted with interim responses, headers and chunk headers. */
export const MAX_READ_BYTES = 64 * 1_024;

export interface Posted {
  status: number;
  body: string;
  retryAfter: string | undefined;
}

/**
 * Posts to an allowed address. The name is resolved once, and the connection uses the checked addresses. Redirects are
 * not followed, and no proxy is used. Rejects with an Error whose message may be shown to the owner of the webhook.
 */
export async function post(
  sender: Sender,
  target: string,
  headers: Record<string, string>,
  body: string,
  signal?: AbortSignal,
): Promise<Posted> {
  const url = new URL(target);
  return reachInTime(sender, url, signal, (destination, over) =>
    exchange(url, destination, headers, body, over),
  );
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
