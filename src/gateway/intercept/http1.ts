import {
  createServer,
  request as sendRequest,
  ServerResponse,
  type ClientRequest,
  type IncomingMessage,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { joinSides, type Sides } from './connection.js';
import { guarded } from './guarded.js';
import { answer, rawAnswer, relayAnswer, tooManyBodies, unsendable, type Exchange } from './http1-answer.js';
import { relayBody } from './http1-body.js';
import { forwardedFields, listOf, pairsOf, valuesOf, withoutFields, type Field } from './http1-headers.js';
import { authorityOf, framingOf, hasBody, pathOf } from './http1-request.js';
import type { Refusal } from './refusal.js';
import { hostOf, refuseHost } from './request-host.js';
import { RequestSecrets } from './request-secrets.js';
import { REQUEST_MS } from './shared-work.js';
import { UpstreamAgent } from './upstream-agent.js';
import { readBody } from './whole-body.js';

const MOST_HEADER_BYTES = 65_536;
/** The length is written anew. */
const LENGTH = new Set(['content-length']);
const LENGTH_AND_EXPECT = new Set(['content-length', 'expect']);

interface Serving extends Sides {
  agent: UpstreamAgent;
}

interface Sent {
  path: string;
  /** The fields that say how long the body is. */
  framing: Field[];
  /** The gateway has read the body, or a part of it. */
  isRead?: boolean;
  upgrade?: string;
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
    const forward = guarded(
      (request: IncomingMessage, response: ServerResponse) => this.forward(request, response),
      ({ socket }) => socket.destroy(),
    );
    this.server.on('request', forward).on('checkContinue', forward).on('checkExpectation', forward);
    const upgrade = guarded(
      (request: IncomingMessage, socket: Duplex, head: Buffer) => this.upgrade(request, socket, head),
      (_, socket) => socket.destroy(),
    );
    this.server.on('upgrade', upgrade);
    const refuseTunnel = guarded(
      (request: IncomingMessage, socket: Duplex) => this.refuseTunnel(request, socket),
      (_, socket) => socket.destroy(),
    );
    this.server.on('connect', refuseTunnel);
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
    const begun = this.begin(serving, request, response);
    if (!begun) return;
    const { connection } = serving;
    const wait = connection.work.charge(connection.orgId, REQUEST_MS);
    const pass = () => this.pass(serving, begun.exchange, begun.path);
    if (!wait) return pass();
    void wait.then(() => response.destroyed || pass()).catch(() => request.socket.destroy());
  }

  private pass(serving: Serving, exchange: Exchange, path: string): void {
    const { request } = exchange;
    if (exchange.secrets?.rewritesBodies && hasBody(request))
      return void this.forwardWhole(serving, exchange, path).catch(() => request.socket.destroy());
    const outgoing = this.send(serving, exchange, { path, framing: framingOf(request) });
    if (outgoing) relayBody(exchange, outgoing);
  }

  /** Undefined: the request is refused, and answered. */
  private begin(
    serving: Serving,
    request: IncomingMessage,
    response: ServerResponse,
  ): { exchange: Exchange; path: string } | undefined {
    response.sendDate = false;
    for (const side of [request, response]) side.on('error', () => request.socket.destroy());
    const path = pathOf(request);
    const refusal = this.refuse(serving, request, path);
    if (refusal) {
      answer(response, request, refusal);
      return undefined;
    }
    const { connection, upstream } = serving;
    const name = hostOf(authorityOf(request)!)!;
    const secrets = RequestSecrets.for(connection, name, upstream.verified);
    return { exchange: { name, request, response, secrets }, path: path! };
  }

  /** Values go into the body, so its length is known only when it is read. */
  private async forwardWhole(serving: Serving, exchange: Exchange, path: string): Promise<void> {
    const { request, response, secrets, name } = exchange;
    // The client must not wait for a server that waits for the whole body.
    if (request.headers.expect?.toLowerCase() === '100-continue') response.writeContinue();
    const read = await readBody(request, serving.connection);
    if (read.kind === 'broken') return void request.socket.destroy();
    if (read.kind === 'full') return answer(response, request, tooManyBodies(name));
    response.once('close', read.free);
    if (read.kind === 'large') {
      const outgoing = this.send(serving, exchange, { path, framing: framingOf(request), isRead: true });
      return outgoing && relayBody(exchange, outgoing, read.first);
    }
    const body = secrets!.body(read.body, request.headers['content-type']);
    await secrets!.rest();
    if (response.destroyed) return;
    if ('code' in body) return answer(response, request, body);
    const framing: Field[] = [['Content-Length', String(body.length)]];
    this.send(serving, exchange, { path, framing, isRead: true })?.end(body);
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

  /** Sends the head. Undefined: it is refused, and answered. */
  private send(
    { agent }: Serving,
    exchange: Exchange,
    { path: asked, framing, isRead = false, upgrade }: Sent,
  ): ClientRequest | undefined {
    const { request, response, secrets, name } = exchange;
    const method = request.method!;
    const own = withoutFields(forwardedFields(request.rawHeaders), isRead ? LENGTH_AND_EXPECT : LENGTH);
    if (valuesOf(request.rawHeaders, 'host').length === 0) own.push(['Host', authorityOf(request)!]);
    const head = secrets?.head(method, asked, own) ?? { path: asked, headers: own };
    if ('code' in head) {
      answer(response, request, head);
      return undefined;
    }
    const switching: Field[] =
      upgrade === undefined
        ? []
        : [
            ['Connection', 'Upgrade'],
            ['Upgrade', upgrade],
          ];
    try {
      const headers = [...head.headers, ...switching, ...framing].flat() as unknown as NodeJS.Dict<string>;
      const limits = { maxHeaderSize: MOST_HEADER_BYTES, insecureHTTPParser: false };
      const outgoing = sendRequest({ agent, method, path: head.path, headers, ...limits });
      relayAnswer(exchange, outgoing);
      return outgoing;
    } catch {
      answer(response, request, unsendable(name));
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
    response.shouldKeepAlive = false;
    response.assignSocket(socket as never);
    response.once('finish', () => {
      response.detachSocket(socket as never);
      socket.end();
    });
    const begun = this.begin(serving, request, response);
    if (!begun) return;
    const outgoing = this.send(serving, begun.exchange, { path: begun.path, framing: [], upgrade: protocol });
    const join = (reply: IncomingMessage, server: Duplex, first: Buffer) => {
      response.detachSocket(socket as never);
      socket.write(headOf(reply, begun.exchange.secrets), 'latin1');
      if (first.length > 0) server.unshift(first);
      if (head.length > 0) socket.unshift(head);
      joinSides(socket, server);
    };
    outgoing?.once(
      'upgrade',
      guarded(join, () => socket.destroy()),
    );
    outgoing?.end();
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

/** The head of an answer that switches protocols, as it came. */
function headOf(
  { statusCode, statusMessage, rawHeaders }: IncomingMessage,
  secrets?: RequestSecrets,
): string {
  const fields = pairsOf(rawHeaders).map(([name, value]) => `${name}: ${secrets?.echo(value) ?? value}\r\n`);
  return `HTTP/1.1 ${statusCode} ${statusMessage}\r\n${fields.join('')}\r\n`;
}
