import {
  request as httpRequest,
  validateHeaderValue,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ApiError } from '../../http/errors.js';
import { breakOff } from '../answer.js';
import { answerHeaders, requestHeaders } from '../headers.js';
import { relayAnswer } from './answer.js';
import { copy } from './copy.js';
import { MAX_ANSWER_HEAD, SILENCE_MS, STALL_MS, type Exchange } from './exchange.js';
import type { UpstreamOptions, Upstreams } from './upstreams.js';

const TOKEN = /^[\w!#$%&'*+.^`|~-]+(\/[\w!#$%&'*+.^`|~-]+)?$/;
/** They would change the framing of the requests that follow, which this service judges one by one. */
const OF_HTTP = /^(h2c?|http|tls|quic)\b/i;
/** After one side has ended, the other one has so long. */
const HALF_CLOSED_MS = 60_000;

/** The connection of a request to upgrade, and the bytes after its head. */
export interface UpgradeSocket {
  socket: Socket;
  head: Buffer;
}

/** The protocol that a request asks for. Undefined: none that is passed on; the request is then an ordinary one. */
export function protocolOf({ headers: { upgrade = '' } }: IncomingMessage): string | undefined {
  return TOKEN.test(upgrade) && !OF_HTTP.test(upgrade) ? upgrade : undefined;
}

/** Throws an ApiError: the bytes of a body would be those of the next protocol for one of two servers. */
export function refuseBody({ headers }: Exchange['request']): void {
  if (headers['transfer-encoding'] !== undefined || !/^0?$/.test(headers['content-length'] ?? '')) {
    const message = 'a request to upgrade has no body: send it without Content-Length and Transfer-Encoding';
    throw new ApiError('invalid_request', message, null, { headers: { connection: 'close' } });
  }
}

/**
 * Forwards a request to upgrade, and joins both connections when the server agrees to the very protocol. Resolves when
 * they are closed. Rejects when there is no answer.
 */
export async function forwardUpgrade(
  exchange: Exchange & { response: ServerResponse },
  protocol: string,
  client: UpgradeSocket,
  upstreams: Upstreams,
): Promise<void> {
  const { request, response, target, sender } = exchange;
  const headers = requestHeaders(request, target, sender).concat(
    'Connection',
    'Upgrade',
    'Upgrade',
    protocol,
  );
  const options: UpstreamOptions = {
    agent: upstreams.single,
    target,
    method: request.method ?? 'GET',
    path: request.url ?? '/',
    headers,
    setHost: false,
    maxHeaderSize: MAX_ANSWER_HEAD,
  };
  const upstream = httpRequest(options);
  const over = new AbortController();
  try {
    await new Promise<void>((resolve, reject) => {
      const abandon = () => {
        breakOff(response);
        client.socket.destroy();
        resolve();
      };
      const silence = setTimeout(() => reject(new ApiError('no_answer_of_sandbox')), SILENCE_MS);
      over.signal.addEventListener('abort', () => clearTimeout(silence), { once: true });
      if (client.socket.destroyed) return abandon();
      client.socket.once('close', () => resolve());
      upstream.once('socket', () => exchange.connected());
      upstream.on('error', (error) => (response.headersSent ? abandon() : reject(error)));
      upstream.once('close', () => {
        if (!response.headersSent && upstream.listenerCount('upgrade') > 0)
          reject(new ApiError('no_answer_of_sandbox'));
      });
      upstream.once('response', (answer) => {
        try {
          relayAnswer(answer, { response, target, moved: exchange.moved, broken: abandon, ended: resolve });
        } catch (error) {
          reject(error);
        }
      });
      upstream.once('upgrade', (answer, server, head) => {
        clearTimeout(silence);
        over.signal.addEventListener('abort', () => server.destroy(), { once: true });
        try {
          const accepted = headOf101(answer, protocol, exchange);
          response.detachSocket(client.socket);
          client.socket.write(accepted, 'latin1');
          join(client, { socket: server, head }, exchange);
        } catch (error) {
          reject(error);
        }
      });
      upstream.end();
    });
  } finally {
    over.abort();
    upstream.destroy();
  }
}

/** Throws an ApiError for another protocol than the client has asked for. */
function headOf101(answer: IncomingMessage, protocol: string, { target }: Exchange): string {
  const chosen = answer.headers.upgrade ?? '';
  if (answer.statusCode !== 101 || chosen.toLowerCase() !== protocol.toLowerCase()) {
    throw new ApiError(
      'no_answer_of_sandbox',
      'the server chose a protocol that the client has not asked for',
    );
  }
  const raw = answerHeaders(answer.rawHeaders, answer.headers, target);
  const lines = ['HTTP/1.1 101 Switching Protocols', `Upgrade: ${chosen}`, 'Connection: Upgrade'];
  for (let at = 0; at < raw.length; at += 2) {
    const [name, value] = [raw[at]!, raw[at + 1]!];
    if (name.toLowerCase() === 'content-length') continue;
    validateHeaderValue(name, value);
    lines.push(`${name}: ${value}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}

/** Copies both ways until one side closes. Each side may end its direction first. */
function join(
  client: UpgradeSocket,
  server: { socket: Duplex; head: Buffer },
  { moved }: Pick<Exchange, 'moved'>,
): void {
  const close = () => {
    client.socket.destroy();
    server.socket.destroy();
  };
  const pairs = [
    { from: client, to: server, direction: 'in' as const },
    { from: server, to: client, direction: 'out' as const },
  ];
  for (const { from, to, direction } of pairs) {
    if (from.head.length > 0) {
      void moved(direction, from.head.length);
      to.socket.write(from.head);
    }
    copy(from.socket, to.socket, {
      moved: (bytes) => moved(direction, bytes),
      stalled: close,
      stallMs: STALL_MS,
    });
    from.socket.once('end', () => {
      to.socket.end();
      setTimeout(close, HALF_CLOSED_MS).unref();
    });
    from.socket.on('error', close).once('close', close);
  }
}
