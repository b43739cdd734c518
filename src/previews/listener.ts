import type { FastifyBaseLogger } from 'fastify';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SlotLimits } from '../fairness/slots.js';
import type { TrustedProxies } from '../http/client-address.js';
import { Connections } from '../http/connections.js';
import { acceptExpectations } from '../http/expect.js';
import { BACKLOG } from '../http/listen.js';
import type { Certificate } from '../http/tls/certificate.js';
import { expectTls } from '../http/tls/handshakes.js';
import { ApiError } from '../http/errors.js';
import { afterLastWord } from '../http/last-word.js';
import { answerRaw, onceOver } from './answer.js';
import { declineUpgrade } from './decline-upgrade.js';
import { MAX_HEAD_BYTES, MAX_HEADERS } from './limits.js';
import { protocolOf } from './proxy/upgrade.js';
import type { PreviewRequest, PreviewResponse } from './types.js';

export const HEAD_MS = 10_000;
const KEEP_ALIVE_MS = 72_000;
/** The streams of one HTTP/2 connection. Each may hold 64 KiB of a body that nobody reads. */
const MOST_STREAMS = 100;
/** The pipelined requests of one connection that may be in progress. */
const MOST_PIPELINED = 32;
/** A client whose machine has vanished is noticed in minutes, also on an open WebSocket without traffic. */
const PROBE_AFTER_MS = 60_000;
/** The time that open requests have when the listener closes. */
const CLOSE_MS = 8_000;

export interface Handlers {
  request(request: PreviewRequest, response: PreviewResponse): void;
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

export interface ListenerParts {
  log: FastifyBaseLogger;
  limits: SlotLimits;
  proxies: TrustedProxies;
  /** Undefined: HTTP/1.1 without TLS. With it, clients may choose HTTP/2. */
  certificate: Certificate | undefined;
  /** The time that a connection without a request stays open. */
  keepAliveMs?: number | undefined;
}

/** The listener of previews. It shares no server and no port with the API. */
export class PreviewListener {
  private readonly server: Server;
  private readonly http2: Http2Server;
  private readonly sessions = new Map<ServerHttp2Session, Socket>();
  private readonly upgraded = new Set<Duplex>();
  private readonly others: Server[] = [];
  private readonly closeHandshakes: (() => void) | undefined;
  private isClosing = false;

  constructor(
    { log, limits, proxies, certificate, keepAliveMs = KEEP_ALIVE_MS }: ListenerParts,
    handlers: Handlers,
  ) {
    this.server = createServer({
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: HEAD_MS,
      connectionsCheckingInterval: HEAD_MS / 4,
      // Uploads may take hours. The proxy ends those that stand still.
      requestTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      insecureHTTPParser: false,
      // The host is judged with the other headers, and refused in the form of every error.
      requireHostHeader: false,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: PROBE_AFTER_MS,
    });
    this.server.maxHeadersCount = 0;
    this.http2 = createHttp2Server({
      maxHeaderListPairs: MAX_HEADERS + 4,
      maxSendHeaderBlockLength: 2 * MAX_HEAD_BYTES,
      settings: {
        maxConcurrentStreams: MOST_STREAMS,
        maxHeaderListSize: MAX_HEAD_BYTES,
        enablePush: false,
        enableConnectProtocol: false,
      },
    });
    this.closeHandshakes = certificate && expectTls(this.server, certificate, answerPlainHttp, this.http2);
    const noRoom = new ApiError(
      'not_ready',
      'too many connections are open: close some, or try again',
      null,
      {
        headers: { 'retry-after': '1' },
      },
    );
    const connections = new Connections(limits, proxies, log, (socket) => {
      if (certificate) socket.destroy();
      else answerRaw(socket, noRoom);
    });
    connections.watch(this.server);
    this.watchSessions(connections, keepAliveMs);
    this.http2.on('request', (request, response) => handlers.request(request, response));
    acceptExpectations(this.server);
    this.server.on('request', (request, response) => {
      const { socket } = request;
      const count = connections.begin(request);
      // Browsers send one after the other. A connection that was refused has its answer already.
      if (count === undefined || count > MOST_PIPELINED) return void socket.destroy();
      onceOver(request, response, () => connections.end(socket));
      if (this.isClosing) response.shouldKeepAlive = false;
      handlers.request(request, response);
    });
    this.server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      if (protocolOf(request) === undefined) return declineUpgrade(this.server, request, socket, head);
      socket.on('error', () => socket.destroy());
      connections.begin(request);
      this.upgraded.add(socket);
      socket.once('close', () => this.upgraded.delete(socket));
      handlers.upgrade(request, socket, head);
    });
    this.server.on('connect', (_request, socket) => {
      socket.on('error', () => socket.destroy());
      answerRaw(socket, new ApiError('not_supported', 'previews are no proxy: CONNECT is not supported'));
    });
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
      if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
      else answerRaw(socket, refusalOfBroken(error));
    });
  }

  /** Returns the port. `host`: of several addresses each is listened on. */
  async listen(host: string, port: number): Promise<number> {
    const [first, ...more] = host === 'localhost' ? await addressesOf(host) : [host];
    await listenAt(this.server, first!, port);
    const { port: taken } = this.server.address() as AddressInfo;
    for (const address of more) {
      const other = createServer();
      other.removeAllListeners('connection');
      other.on('connection', (socket) => this.server.emit('connection', socket));
      other.maxConnections = this.server.maxConnections;
      const isThere = await listenAt(other, address, taken).then(() => true, unlessMissing);
      if (isThere) this.others.push(other);
    }
    return taken;
  }

  /** Answers the requests in progress for some seconds, and ends upgraded connections at once. */
  async close(): Promise<void> {
    this.isClosing = true;
    this.closeHandshakes?.();
    const closed = [this.server, ...this.others].map(
      (server) => new Promise((done) => (server.listening ? server.close(done) : done(undefined))),
    );
    this.server.closeIdleConnections();
    for (const socket of this.upgraded) socket.destroy();
    for (const session of this.sessions.keys()) session.close();
    const cut = setTimeout(() => {
      this.server.closeAllConnections();
      for (const [session, socket] of this.sessions) {
        session.destroy();
        socket.destroy();
      }
    }, CLOSE_MS);
    await Promise.all(closed);
    await Promise.all(
      [...this.sessions.keys()].map((session) => new Promise((done) => session.once('close', done))),
    );
    clearTimeout(cut);
  }

  /** Sessions of HTTP/2: their streams are requests of the connection, as those of HTTP/1.1 are. */
  private watchSessions(connections: Connections, keepAliveMs: number): void {
    const { http2 } = this;
    let arriving: Socket | undefined;
    http2.prependListener('connection', (socket: Socket) => (arriving = socket));
    http2.on('session', (session) => {
      const socket = arriving!;
      // HTTP/2 does not notice the end of a client that has left, and would keep its streams.
      socket.allowHalfOpen = false;
      this.sessions.set(session, socket);
      session.once('close', () => this.sessions.delete(session));
      session.on('error', () => session.destroy());
      let open = 0;
      // A client that has left with pings unanswered keeps a closed session open: Node waits to write its last words.
      const endIdle = () => {
        if (open === 0 && session.closed) afterLastWord(socket, () => socket.destroy());
      };
      session.setTimeout(keepAliveMs, () => {
        session.close();
        endIdle();
      });
      session.on('stream', (stream) => {
        connections.begin({ socket });
        open += 1;
        stream.on('error', () => undefined);
        stream.once('close', () => {
          connections.end(socket);
          open -= 1;
          endIdle();
        });
      });
    });
    http2.on('sessionError', () => undefined);
  }
}

async function listenAt(server: Server, host: string, port: number): Promise<void> {
  await once(server.listen({ host, port, backlog: BACKLOG }), 'listening');
}

async function addressesOf(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true });
  return found.toSorted((a, b) => a.family - b.family).map(({ address }) => address);
}

/** The file of names may have IPv6 where the kernel has none. */
function unlessMissing(error: NodeJS.ErrnoException): boolean {
  if (error.code !== 'EADDRNOTAVAIL' && error.code !== 'EAFNOSUPPORT') throw error;
  return false;
}

function refusalOfBroken({ code }: NodeJS.ErrnoException): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') return new ApiError('headers_too_large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError('request_timeout');
  return new ApiError('invalid_request', 'this is not an HTTP/1.1 request');
}

function answerPlainHttp(socket: Socket): void {
  answerRaw(socket, new ApiError('invalid_request', 'this port speaks HTTPS: write https:// in the URL'));
  // Unread bytes would reset the connection before the client has the answer.
  socket.resume();
}
