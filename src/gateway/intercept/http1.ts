import {
  createServer,
  request as sendRequest,
  ServerResponse,
  type ClientRequest,
  type IncomingMessage,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { joinSides, type Sides } from './connection.js';
import { forwardedFields, listOf, valuesOf } from './http1-headers.js';
import { refusalHeaders, refusalText, type Refusal } from './refusal.js';
import { refuseHost } from './request-host.js';
import { UpstreamAgent } from './upstream-agent.js';

const MOST_HEADER_BYTES = 65_536;
/** Node gives an answer without its reason phrase an empty one. */
const NEVER_FINISHED = 'the server ended its answer early';

interface Serving extends Sides {
  agent: UpstreamAgent;
}

/** Forwards HTTP/1.1: one parser reads each request for the check and for the server. */
export class Http1Forwarder {
  private readonly serving = new WeakMap<Duplex, Serving>();
  /** It never listens: it gets connections that are open. */
  private readonly server = createServer({
    // `refuseHost` gives the reason.
    requireHostHeader: false,
    maxHeaderSize: MOST_HEADER_BYTES,
    insecureHTTPParser: false,
    keepAlive: false,
    noDelay: true,
  });

  constructor() {
    // A client that has ended its side still gets its answer.
    Object.assign(this.server, { httpAllowHalfOpen: true });
    this.server.timeout = 0;
    this.server.requestTimeout = 0;
    // Connections end when the server ends them.
    this.server.keepAliveTimeout = 0;
    const forward = (request: IncomingMessage, response: ServerResponse) => this.forward(request, response);
    this.server.on('request', forward).on('checkContinue', forward).on('checkExpectation', forward);
    this.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.upgrade(request, socket, head),
    );
    this.server.on('connect', (request: IncomingMessage, socket: Duplex) =>
      this.refuseTunnel(request, socket),
    );
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) =>
      this.refuseBroken(error, socket),
    );
  }

  serve(sides: Sides): void {
    const { client } = sides;
    const { socket } = sides.upstream;
    const serving = { ...sides, agent: new UpstreamAgent(socket) };
    this.serving.set(client, serving);
    // The end of the server's side is that of the client's. An answer under way is completed by its forwarder.
    const end = () => {
      if (serving.agent.isIdle) client.end();
    };
    socket.on('end', end).on('close', end);
    // A client that ends its side mostly is gone. The server sees it, as it would without the gateway.
    client.once('end', () => serving.agent.endWhenSent());
    this.server.emit('connection', client);
    // A listener does not wake a socket that was paused, and the first bytes of clear HTTP wait in one.
    client.resume();
  }

  private forward(request: IncomingMessage, response: ServerResponse): void {
    const serving = this.serving.get(request.socket);
    if (!serving) return void request.socket.destroy();
    response.sendDate = false;
    const path = pathOf(request);
    const refusal = this.refuse(serving, request, path);
    if (refusal) return answer(response, request, refusal);
    const outgoing = this.open(serving, request, path!);
    if (!outgoing) return answer(response, request, unreadable(serving));
    relayAnswer({ serving, request, response, outgoing });
    relayBody(request, outgoing);
  }

  private refuse(
    { connection }: Serving,
    request: IncomingMessage,
    path: string | undefined,
  ): Refusal | undefined {
    const refusal =
      path === undefined
        ? {
            status: 400,
            code: 'invalid_request' as const,
            message: 'the target of the request is no path: send a path that begins with /',
            domain: connection.to.name,
          }
        : refuseHost(connection.to, authorityOf(request));
    if (refusal?.code === 'network_policy_denied') connection.deny(refusal);
    return refusal;
  }

  /** Undefined: Node does not send it. */
  private open({ agent }: Serving, request: IncomingMessage, path: string, upgrade?: string) {
    const fields = forwardedFields(request.rawHeaders);
    if (upgrade !== undefined) fields.push('Connection', 'Upgrade', 'Upgrade', upgrade);
    if (valuesOf(request.rawHeaders, 'host').length === 0) fields.push('Host', authorityOf(request)!);
    if (request.headers['transfer-encoding'] !== undefined) fields.push('Transfer-Encoding', 'chunked');
    // Without it Node would announce a chunked body.
    else if (request.headers['content-length'] === undefined && takesBody(request.method!))
      fields.push('Content-Length', '0');
    try {
      const headers = fields as unknown as NodeJS.Dict<string>;
      return sendRequest({
        agent,
        method: request.method!,
        path,
        headers,
        maxHeaderSize: MOST_HEADER_BYTES,
        insecureHTTPParser: false,
      });
    } catch {
      return undefined;
    }
  }

  private upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const serving = this.serving.get(socket);
    if (!serving) return void socket.destroy();
    const protocol = request.headers.upgrade ?? '';
    // A server may ignore an upgrade. These two would need more than to pass bytes on.
    if (listOf(protocol).includes('h2c') || hasBody(request))
      return this.ignoreUpgrade(request, socket, head);
    const response = new ServerResponse(request);
    response.sendDate = false;
    response.shouldKeepAlive = false;
    response.assignSocket(socket as never);
    response.once('finish', () => {
      response.detachSocket(socket as never);
      socket.end();
    });
    const path = pathOf(request);
    const refusal = this.refuse(serving, request, path);
    if (refusal) return answer(response, request, refusal);
    const outgoing = this.open(serving, request, path!, protocol);
    if (!outgoing) return answer(response, request, unreadable(serving));
    outgoing.once('upgrade', (reply: IncomingMessage, server: Duplex, first: Buffer) => {
      response.detachSocket(socket as never);
      socket.write(headOf(reply), 'latin1');
      if (first.length > 0) server.unshift(first);
      if (head.length > 0) socket.unshift(head);
      joinSides(socket, server);
    });
    relayAnswer({ serving, request, response, outgoing });
    outgoing.end();
  }

  /** Lets the parser read the request again, without its upgrade. */
  private ignoreUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const fields: string[] = [];
    for (const [name, value] of pairsOf(request.rawHeaders)) {
      const isOfUpgrade = ['upgrade', 'http2-settings'].includes(name.toLowerCase());
      if (name.toLowerCase() !== 'connection') {
        if (!isOfUpgrade) fields.push(`${name}: ${value}`);
        continue;
      }
      const kept = listOf(value).filter((each) => each !== 'upgrade' && each !== 'http2-settings');
      if (kept.length > 0) fields.push(`${name}: ${kept.join(', ')}`);
    }
    const line = `${request.method} ${request.url} HTTP/${request.httpVersion}`;
    socket.unshift(Buffer.concat([Buffer.from(`${[line, ...fields].join('\r\n')}\r\n\r\n`, 'latin1'), head]));
    this.server.emit('connection', socket);
  }

  private refuseTunnel(request: IncomingMessage, socket: Duplex): void {
    const serving = this.serving.get(socket);
    if (!serving) return void socket.destroy();
    const refusal: Refusal = {
      status: 403,
      code: 'network_policy_denied',
      message: 'a tunnel through another server is not allowed: connect to its destination itself',
      domain: request.url?.replace(/:\d+$/, '') ?? '',
    };
    serving.connection.deny(refusal);
    socket.end(rawAnswer(refusal));
  }

  private refuseBroken(error: NodeJS.ErrnoException, socket: Duplex): void {
    const serving = this.serving.get(socket);
    if (!serving || !socket.writable || !error.code?.startsWith('HPE_')) return void socket.destroy();
    const isLong = error.code === 'HPE_HEADER_OVERFLOW';
    socket.end(
      rawAnswer({
        status: isLong ? 431 : 400,
        code: 'invalid_request',
        message: isLong
          ? `the head of the request is longer than ${MOST_HEADER_BYTES} bytes: send fewer or shorter fields`
          : 'the request is not valid HTTP/1.1: send it as RFC 9112 says',
        domain: serving.connection.to.name,
      }),
    );
  }
}

interface Exchange {
  serving: Serving;
  request: IncomingMessage;
  response: ServerResponse;
  outgoing: ClientRequest;
}

function relayAnswer({ serving, request, response, outgoing }: Exchange): void {
  const { client } = serving;
  outgoing.on('continue', () => response.writeContinue());
  outgoing.on('information', ({ statusCode, rawHeaders }) => {
    if (statusCode === 102) response.writeProcessing();
    if (statusCode === 103) writeEarlyHints(response, rawHeaders);
  });
  outgoing.on('response', (answered) => {
    if (!outgoing.shouldKeepAlive) response.shouldKeepAlive = false;
    try {
      response.writeHead(answered.statusCode!, answered.statusMessage, forwardedFields(answered.rawHeaders));
    } catch {
      answered.destroy();
      return answer(response, request, unreadable(serving));
    }
    answered.pipe(response, { end: false });
    // Events streams send their head long before their first event. Short answers leave in one piece with their head.
    const flush = setImmediate(() => response.flushHeaders());
    answered.on('end', () => {
      clearImmediate(flush);
      if (answered.rawTrailers.length > 0) response.addTrailers(pairsOf(answered.rawTrailers));
      response.end();
    });
    // A client must not take a part for the whole.
    answered.on('error', () => client.destroy(new Error(NEVER_FINISHED)));
    answered.on('close', () => {
      if (!answered.complete) client.destroy();
    });
  });
  outgoing.on('error', (error: NodeJS.ErrnoException) => {
    // A server may answer and close before it has read the whole body.
    if (response.headersSent) return;
    if (error.code?.startsWith('HPE_')) return answer(response, request, unreadable(serving));
    client.destroy();
  });
  response.once('close', () => {
    if (!response.writableFinished) outgoing.destroy();
  });
}

function relayBody(request: IncomingMessage, outgoing: ClientRequest): void {
  if (!hasBody(request)) return void outgoing.end();
  // A client that waits for "100 Continue" sends nothing before the server has seen the head.
  outgoing.flushHeaders();
  request.pipe(outgoing, { end: false });
  request.on('end', () => {
    if (request.rawTrailers.length > 0) outgoing.addTrailers(pairsOf(request.rawTrailers));
    outgoing.end();
  });
  request.on('error', () => outgoing.destroy());
  request.on('aborted', () => outgoing.destroy());
}

function writeEarlyHints(response: ServerResponse, rawHeaders: readonly string[]): void {
  const link = valuesOf(rawHeaders, 'link');
  if (link.length === 0) return;
  try {
    response.writeEarlyHints({ link });
  } catch {
    // A hint that Node does not send is none that the client needs.
  }
}

/** The path for the server. Undefined: the target is neither a path nor a URL, nor `*` of OPTIONS. */
function pathOf({ method, url = '' }: IncomingMessage): string | undefined {
  if (url.startsWith('/') || (url === '*' && method === 'OPTIONS')) return url;
  const match = /^https?:\/\/[^/?#]*(.*)$/i.exec(url);
  if (!match) return undefined;
  return match[1]!.startsWith('/') ? match[1] : `/${match[1]}`;
}

/** The host of the request. Undefined: it names none, or two that differ. */
function authorityOf({ url = '', rawHeaders, httpVersionMajor }: IncomingMessage): string | undefined {
  const hosts = valuesOf(rawHeaders, 'host');
  if (hosts.length > 1 || httpVersionMajor !== 1) return undefined;
  const absolute = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (absolute !== undefined && hosts[0] !== undefined && absolute.toLowerCase() !== hosts[0].toLowerCase())
    return undefined;
  return hosts[0] ?? absolute;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

function takesBody(method: string): boolean {
  return !['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT'].includes(method);
}

function pairsOf(flat: readonly string[]): [string, string][] {
  return Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at]!, flat[2 * at + 1]!]);
}

function unreadable({ connection }: Serving): Refusal {
  return {
    status: 502,
    code: 'upstream_failed',
    message: `${connection.to.name} sent an answer that is not valid HTTP/1.1`,
    domain: connection.to.name,
  };
}

function answer(response: ServerResponse, request: IncomingMessage, refusal: Refusal): void {
  if (response.headersSent) return void response.destroy();
  const text = refusalText(refusal);
  // The body of a refused request is not read.
  if (hasBody(request)) response.shouldKeepAlive = false;
  response.writeHead(refusal.status, refusalHeaders(text));
  response.end(text);
}

function rawAnswer(refusal: Refusal): string {
  const text = refusalText(refusal);
  const fields = pairsOf(refusalHeaders(text)).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${refusal.status} \r\n${fields.join('')}connection: close\r\n\r\n${text}`;
}

/** The head of an answer that switches protocols, as it came. */
function headOf({ statusCode, statusMessage, rawHeaders }: IncomingMessage): string {
  const fields = pairsOf(rawHeaders).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${statusCode} ${statusMessage}\r\n${fields.join('')}\r\n`;
}
