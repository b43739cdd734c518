import { request as requestHttp, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction, type TcpNetConnectOpts } from 'node:net';
import { toStorable } from '../lib/storable-text.js';
import { findDestination, type Destination, type DestinationPolicy } from './destination.js';
import type { Resolve } from './resolve.js';

const STORED_BYTES = 1_024;
/** The connection is closed after this much of a response. */
const MAX_READ_BYTES = 64 * 1_024;
/** How long one of several addresses is tried before the next, in milliseconds. */
const ADDRESS_TIMEOUT_MS = 1_000;

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
 * Posts to an allowed address. The name is resolved once, and the connection uses the checked addresses. Redirects are not followed,
 * and no proxy is used. Rejects with an Error whose message may be shown to the owner of the webhook.
 */
export async function post(
  { reach, resolve, timeoutMs }: Sender,
  target: string,
  headers: Record<string, string>,
  body: string,
  signal?: AbortSignal,
): Promise<Posted> {
  signal?.throwIfAborted();
  // Not AbortSignal.any: on Node 20 the garbage collector drops a joined timeout, which then never fires. The signal of the
  // service would also keep every posted body alive.
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(new Error(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
  const stop = () => over.abort(signal!.reason);
  signal?.addEventListener('abort', stop, { once: true });
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
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}

async function exchange(
  url: URL,
  { host, isName, addresses }: Destination,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
): Promise<Posted> {
  const options: RequestOptions &
    Pick<TcpNetConnectOpts, 'autoSelectFamily' | 'autoSelectFamilyAttemptTimeout'> & { servername?: string } =
    {
      method: 'POST',
      host,
      port: url.port,
      path: `${url.pathname}${url.search}`,
      headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body) },
      // No pooled connection, whose address would not have been checked.
      agent: false,
      signal,
      ...(isName ? { lookup: lookupOf(addresses), servername: host } : {}),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
    };
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request(options, resolve);
    outgoing.on('error', (error) => reject(withMessage(error)));
    outgoing.end(body);
  });
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    chunks.push(chunk as Buffer);
    length += (chunk as Buffer).length;
    // Leaving the loop closes the connection.
    if (length >= MAX_READ_BYTES) break;
  }
  return {
    status: response.statusCode!,
    body: toStorable(Buffer.concat(chunks).subarray(0, STORED_BYTES).toString('utf8')),
    retryAfter: response.headers['retry-after'],
  };
}

/** If several addresses fail, Node reports an error without a message. */
function withMessage(error: Error): Error {
  if (!(error instanceof AggregateError) || error.message !== '') return error;
  const messages = error.errors.map(({ message }: Error) => message).join(', ');
  return new Error(messages, { cause: error });
}

/** A lookup that always returns the checked addresses. */
function lookupOf(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_host, options, answer) => {
    if (options.all) answer(null, all);
    else answer(null, all[0]!.address, all[0]!.family);
  };
}
