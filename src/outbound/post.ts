import { request as requestHttp, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction, type TcpNetConnectOpts } from 'node:net';
import { findDestination, type Destination, type DestinationPolicy } from './destination.js';
import type { Resolve } from './resolve.js';

/** So much of an answer is kept, and so much is read before the connection is cut. */
const KEPT_BYTES = 1_024;
const READ_BYTES = 64 * 1_024;
/** So long one address of several is tried alone, in milliseconds. */
const ADDRESS_MS = 1_000;

export interface Posted {
  status: number;
  /** The first KiB of the answer, as text. */
  body: string;
  /** As the receiver says it. */
  retryAfter: string | undefined;
}

export interface Sender {
  reach: DestinationPolicy;
  resolve: Resolve;
  /** The longest that name, connection, request and answer may take together. */
  timeoutMs: number;
}

/**
 * Posts to an address that may be reached and to no other: the name is resolved once, checked, and connected to as checked.
 * Redirects are answers like any other, and no proxy is asked. Rejects with an Error whose message can be shown to who made the
 * webhook.
 */
export async function post(
  { reach, resolve, timeoutMs }: Sender,
  target: string,
  headers: Record<string, string>,
  body: string,
  signal?: AbortSignal,
): Promise<Posted> {
  signal?.throwIfAborted();
  // Not AbortSignal.any: on Node 20 a timeout that is joined is forgotten by the garbage collector and never ends, and the
  // signal of the service would keep every body that was ever posted.
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(new Error(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
  const stop = () => over.abort(signal!.reason);
  signal?.addEventListener('abort', stop, { once: true });
  const url = new URL(target);
  const sent = findDestination(url, reach, resolve).then((destination) =>
    exchange(url, destination, headers, body, over.signal),
  );
  // A name server that is silent cannot be interrupted: nobody waits for it any more.
  const ended = new Promise<never>((_, reject) => {
    over.signal.addEventListener('abort', () => reject(over.signal.reason as Error), { once: true });
  });
  try {
    return await Promise.race([sent, ended]);
  } catch (error) {
    sent.catch(() => undefined);
    // That the request was aborted is not the reason.
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
      // Its own connection: one that is kept would be one that nobody has checked.
      agent: false,
      signal,
      ...(isName ? { lookup: onlyTo(addresses), servername: host } : {}),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_MS,
    };
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = request(options, resolve);
    asked.on('error', (error) => reject(plain(error)));
    asked.end(body);
  });
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    chunks.push(chunk as Buffer);
    length += (chunk as Buffer).length;
    // Leaving the loop cuts the connection.
    if (length >= READ_BYTES) break;
  }
  return {
    status: response.statusCode!,
    body: storable(Buffer.concat(chunks).subarray(0, KEPT_BYTES).toString('utf8')),
    retryAfter: response.headers['retry-after'],
  };
}

/** Of several addresses that all failed Node gives one error without a message. */
function plain(error: Error): Error {
  if (!(error instanceof AggregateError) || error.message !== '') return error;
  const messages = error.errors.map(({ message }: Error) => message).join(', ');
  return new Error(messages, { cause: error });
}

/** Stands in for the question to a name server: the answer is what was checked. */
function onlyTo(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_host, options, answer) => {
    if (options.all) answer(null, all);
    else answer(null, all[0]!.address, all[0]!.family);
  };
}

/** What PostgreSQL can hold: a character that was cut in two, or is none, becomes U+FFFD. */
export function storable(text: string): string {
  return text.replaceAll('\0', '\uFFFD').toWellFormed();
}
