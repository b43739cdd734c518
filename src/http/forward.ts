import type { FastifyReply, FastifyRequest } from 'fastify';
import {
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
} from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { ConnectionOptions, SecureContext } from 'node:tls';
import { CidrSet } from '../lib/cidr.js';
import { prefixOf } from './path-prefix.js';
import { continueBody } from './expect.js';
import { upgradeOf, type Upgrade } from './upgrade.js';
import { whenOver } from './when-over.js';

const CONNECT_MS = 5_000;
/** Channels and event streams carry keep-alives more often. */
const SILENCE_MS = 60_000;
const KEEP_ALIVE_MS = 10_000;
const LOOPBACK = new CidrSet(['127.0.0.0/8', '::1']);
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
];

interface Destination {
  url: string;
  /** Added to the headers of the client. */
  headers: Record<string, string>;
  /** The authorities of a target with TLS; undefined: the well-known ones. */
  trust?: SecureContext | undefined;
  /** Ends streams that would stay open. */
  stopping: AbortSignal;
}

/**
 * Forwards a request whose body has not been read. The request and the answer are streams with back-pressure, and end
 * with each other. Resolves when the answer begins. Rejects when none does; the caller may then answer itself.
 */
export async function forward(request: FastifyRequest, reply: FastifyReply, to: Destination): Promise<void> {
  const { raw } = request;
  const upstream = send(raw, to);
  whenOver(reply, () => upstream.destroy());
  continueBody(raw);
  raw.pipe(upstream);
  try {
    await new Promise<void>((resolve, reject) => {
      upstream.on('error', reject);
      upstream.once('close', () => reject(new Error('the connection closed before the answer')));
      upstream.once('response', (answer) => {
        relay(answer, request, reply, to.stopping);
        resolve();
      });
      upstream.once('upgrade', (answer, socket, head) => {
        join(answer, { socket, head }, request, reply, to.stopping);
        resolve();
      });
    });
  } catch (error) {
    raw.unpipe(upstream).resume();
    throw error;
  }
}

function send(raw: IncomingMessage, { url, headers, trust }: Destination): ClientRequest {
  const target = new URL(url);
  const upgrade = upgradeOf(raw);
  const framing = {
    ...(raw.headers['transfer-encoding'] === undefined ? {} : { 'transfer-encoding': 'chunked' }),
    // A target that refuses a body early then reads the rest of it, so that the answer is not lost.
    ...(upgrade ? { connection: 'Upgrade', upgrade: raw.headers.upgrade } : { connection: 'keep-alive' }),
  };
  const upstream = (target.protocol === 'https:' ? httpsRequest : httpRequest)(target, {
    // The other process cannot be closing a new connection.
    agent: false,
    timeout: CONNECT_MS,
    ...verificationOf(target, trust),
    method: raw.method,
    path: prefixOf(raw) + raw.url,
    headers: { ...endToEnd(raw), ...framing, ...headers },
  });
  upstream.on('timeout', () => upstream.destroy(new Error('the other process is silent')));
  upstream.once('socket', (socket) => {
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.once(target.protocol === 'https:' ? 'secureConnect' : 'connect', () =>
      upstream.setTimeout(upgrade ? SILENCE_MS : 0),
    );
  });
  return upstream;
}

/**
 * The certificate of a process on the same machine is for another name, and nobody else listens on the loopback
 * address.
 */
export function verificationOf(
  { hostname }: URL,
  secureContext: SecureContext | undefined,
): ConnectionOptions {
  const address = hostname.replace(/^\[(.*)\]$/, '$1');
  return {
    servername: isIP(address) === 0 ? hostname : '',
    rejectUnauthorized: !LOOPBACK.includes(address),
    ...(secureContext ? { secureContext } : {}),
  };
}

function relay(
  answer: IncomingMessage,
  { raw }: FastifyRequest,
  reply: FastifyReply,
  stopping: AbortSignal,
): void {
  void reply.hijack();
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream') === true;
  const closes = isStream || !raw.complete || stopping.aborted;
  reply.raw.writeHead(answer.statusCode!, {
    ...(reply.getHeaders() as OutgoingHttpHeaders),
    ...endToEnd(answer),
    ...(closes ? { connection: 'close' } : {}),
  });
  reply.raw.flushHeaders();
  if (isStream) answer.setTimeout(SILENCE_MS, () => answer.destroy());
  void pipeline(answer, reply.raw, isStream ? { signal: stopping } : {})
    .catch(() => undefined)
    .finally(() => raw.resume());
}

/** Connects both sides of an upgrade as pipes of bytes. */
function join(
  answer: IncomingMessage,
  { socket, head }: Pick<Upgrade, 'socket' | 'head'>,
  { raw }: FastifyRequest,
  reply: FastifyReply,
  stopping: AbortSignal,
): void {
  void reply.hijack();
  const client = upgradeOf(raw)!;
  const lines = [`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}`];
  for (let index = 0; index < answer.rawHeaders.length; index += 2) {
    lines.push(`${answer.rawHeaders[index]}: ${answer.rawHeaders[index + 1]}`);
  }
  client.socket.setTimeout(0);
  socket.setTimeout(SILENCE_MS, () => socket.destroy());
  client.socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  client.socket.write(head);
  socket.write(client.head);
  // From the other process to the client, and back.
  pipeline(socket, client.socket, socket, { signal: stopping }).catch(() => {
    socket.destroy();
    client.socket.destroy();
  });
}

function endToEnd({ headers }: IncomingMessage): Record<string, string | string[]> {
  const named = headers.connection?.toLowerCase().split(/[\s,]+/) ?? [];
  const own = new Set([...HOP_BY_HOP, ...named]);
  // The other process would read a body without its length as another request.
  own.delete('content-length');
  return Object.fromEntries(
    Object.entries(headers).filter((entry): entry is [string, string | string[]] => !own.has(entry[0])),
  );
}
