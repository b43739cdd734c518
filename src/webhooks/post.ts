import { request as requestHttp, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { chooseAddress, hostOf, type Reach, type Resolve } from './destination.js';

/** So much of an answer is kept, and so much is read before the connection is cut. */
const KEPT_BYTES = 1_024;
const READ_BYTES = 64 * 1_024;

export interface Posted {
  status: number;
  /** The first KiB of the answer, as text. */
  body: string;
}

export interface Sender {
  reach: Reach;
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
  const late = AbortSignal.timeout(timeoutMs);
  const ends = signal ? AbortSignal.any([late, signal]) : late;
  const url = new URL(target);
  const host = hostOf(url);
  const sent = (async () => {
    const checked = await chooseAddress(host, reach, resolve);
    const options: RequestOptions & { servername?: string } = {
      method: 'POST',
      host: checked.address,
      family: checked.family,
      port: url.port,
      path: `${url.pathname}${url.search}`,
      headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body) },
      // Its own connection: one that is kept would be one that nobody has checked.
      agent: false,
      signal: ends,
      // A certificate is for the name, not for the address.
      ...(isIP(host) === 0 ? { servername: host } : {}),
    };
    return exchange(url.protocol === 'https:' ? requestHttps : requestHttp, options, body);
  })();
  // The resolver of the system cannot be interrupted: nobody waits for it any more.
  const ended = new Promise<never>((_, reject) => {
    const end = () => reject(ends.reason as Error);
    if (ends.aborted) end();
    else ends.addEventListener('abort', end, { once: true });
  });
  sent.catch(() => undefined);
  try {
    return await Promise.race([sent, ended]);
  } catch (error) {
    if (late.aborted) throw new Error(`no answer within ${timeoutMs / 1000} s`, { cause: error });
    throw error;
  }
}

async function exchange(request: typeof requestHttp, options: RequestOptions, body: string): Promise<Posted> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asked = request(options, resolve);
    asked.on('error', reject);
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
  return { status: response.statusCode!, body: textOf(Buffer.concat(chunks).subarray(0, KEPT_BYTES)) };
}

/** What PostgreSQL can hold: a character that was cut in two, or is none, becomes U+FFFD. */
function textOf(bytes: Buffer): string {
  return bytes.toString('utf8').replaceAll('\0', '\uFFFD');
}
