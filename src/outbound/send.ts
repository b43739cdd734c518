import { request as requestHttp, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction, type TcpNetConnectOpts } from 'node:net';
import type { Destination } from './destination.js';

/** How long one of several addresses is tried before the next, in milliseconds. */
const ADDRESS_TIMEOUT_MS = 1_000;
const MAX_INTERIM_BYTES = 64 * 1_024;

export interface Outgoing {
  method: 'GET' | 'HEAD' | 'POST';
  headers: Record<string, string>;
  body?: string;
  signal: AbortSignal;
}

/**
 * Sends a request to the checked addresses of its host, and to no other. Resolves when the headers of the response have
 * arrived. Redirects are not followed, and no proxy is used.
 */
export async function send(
  url: URL,
  { host, isName, addresses }: Destination,
  { method, headers, body, signal }: Outgoing,
): Promise<IncomingMessage> {
  const options: RequestOptions &
    Pick<TcpNetConnectOpts, 'autoSelectFamily' | 'autoSelectFamilyAttemptTimeout'> & { servername?: string } =
    {
      method,
      host,
      port: url.port,
      path: `${url.pathname}${url.search}`,
      headers: {
        ...headers,
        host: url.host,
        ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
      },
      // No pooled connection, whose address would not have been checked.
      agent: false,
      signal,
      ...(isName ? { lookup: lookupOf(addresses), servername: host } : {}),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
    };
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = request(options, resolve);
    outgoing.on('error', (error) => reject(withMessage(error)));
    outgoing.on('information', () => {
      if (outgoing.socket!.bytesRead < MAX_INTERIM_BYTES) return;
      outgoing.destroy(new Error('the receiver sent more than 64 KiB before its answer'));
    });
    outgoing.end(body);
  });
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
