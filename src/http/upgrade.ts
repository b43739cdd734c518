import { Buffer } from 'node:buffer';
import { ServerResponse, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { WebSocketServer, type ServerOptions, type WebSocket } from 'ws';
import type { App } from './route.js';

/** Longer than the longest frame of a client. */
const MAX_MESSAGE = 5 * 1024 * 1024;
/** How long a client may take to answer the close of its connection. */
const CLOSE_MS = 2_000;
const CONNECTION_HEADERS = new Set(['connection', 'upgrade', 'http2-settings']);

/** The connection of a request to upgrade, and the bytes that have arrived after the request. */
export interface Upgrade {
  socket: Socket;
  head: Buffer;
  pingMs: number;
}

const upgrades = new WeakMap<IncomingMessage, Upgrade>();

/**
 * Sends requests for a WebSocket through the same hooks and routes as all others. A route accepts one by
 * `acceptWebSocket`; every other answer closes the connection. Requests for other protocols are answered as if they
 * asked for none.
 */
export function routeUpgrades(app: App, { channelPingMs: pingMs }: { channelPingMs: number }): void {
  app.server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on('error', () => socket.destroy());
    // No client needs this, and Node throws for a second answer on a connection, which would end the process.
    if (hasAnswerInProgress(request, socket)) {
      socket.destroy();
      return;
    }
    if (!asksForWebSocket(request)) {
      socket.unshift(Buffer.concat([withoutUpgrade(request), head]));
      app.server.emit('connection', socket);
      return;
    }
    upgrades.set(request, { socket, head, pingMs });
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    response.on('finish', () => {
      response.detachSocket(socket);
      // Unread bytes would reset the connection before the client has the answer.
      socket.resume().end();
      setTimeout(() => socket.destroy(), CLOSE_MS).unref();
    });
    app.routing(request, response);
  });
}

/** Whether an earlier request of the connection is not answered yet. Its answer holds the socket. */
function hasAnswerInProgress(request: IncomingMessage, socket: Socket): boolean {
  const probe = new ServerResponse(request);
  try {
    probe.assignSocket(socket);
  } catch {
    return true;
  }
  probe.detachSocket(socket);
  return false;
}

function asksForWebSocket({ method, headers }: IncomingMessage): boolean {
  const hasBody = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
  return method === 'GET' && !hasBody && headers.upgrade?.toLowerCase() === 'websocket';
}

/** The bytes of the request without its headers about the connection. Node 20 parses no body behind an upgrade. */
function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (CONNECTION_HEADERS.has(rawHeaders[at]!.toLowerCase())) continue;
    lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  }
  return Buffer.from([...lines, 'Connection: close', '', ''].join('\r\n'), 'latin1');
}

/** Undefined: the request does not ask for an upgrade. */
export function upgradeOf(request: IncomingMessage): Upgrade | undefined {
  return upgrades.get(request);
}

/** Whether the request asks for a WebSocket. */
export function wantsWebSocket(request: IncomingMessage): boolean {
  return upgrades.has(request);
}

/** The bytes that a client has not read yet, beyond which its pings get no answer. */
const MAX_UNREAD = 65_536;

/** A subprotocol that begins like this carries a secret. The service never selects it. */
export const TICKET_PROTOCOL = 'ticket.';

/** `ws` has `closeTimeout`, and its published types do not. */
const OPTIONS: ServerOptions & { closeTimeout: number } = {
  noServer: true,
  perMessageDeflate: false,
  maxPayload: MAX_MESSAGE,
  autoPong: false,
  closeTimeout: CLOSE_MS,
  handleProtocols: (protocols) =>
    [...protocols].find((protocol) => !protocol.startsWith(TICKET_PROTOCOL)) ?? false,
};
const server = new WebSocketServer(OPTIONS);

/**
 * Completes the handshake. A client that does not answer pings is cut off. `arrived` gets the bytes of each read,
 * before their message.
 */
export function acceptWebSocket(
  request: IncomingMessage,
  opened: (socket: WebSocket) => void,
  arrived?: (bytes: number) => void,
): void {
  const upgrade = upgrades.get(request)!;
  server.handleUpgrade(request, upgrade.socket, upgrade.head, (socket) => {
    let alive = true;
    if (arrived) upgrade.socket.prependListener('data', (chunk: Buffer) => arrived(chunk.length));
    socket.on('pong', () => (alive = true));
    socket.on('ping', (data) => {
      // A client that does not read now sends pings of its own.
      alive = true;
      if (socket.bufferedAmount < MAX_UNREAD) socket.pong(data);
    });
    const timer = setInterval(() => {
      // The answers of a client that is not read now arrive later.
      if (!alive && !socket.isPaused) socket.terminate();
      alive = socket.isPaused;
      socket.ping();
    }, upgrade.pingMs);
    socket.on('close', () => clearInterval(timer));
    socket.on('error', () => socket.terminate());
    // A client that ends its side has left; the other side would stay half-open.
    upgrade.socket.on('end', () => socket.terminate());
    opened(socket);
  });
}
