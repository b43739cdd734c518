import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import {
  createSecureServer,
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from 'node:http2';
import type { Socket } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { encode } from 'dns-packet';
import { WebSocketServer } from 'ws';
import type { ZoneServer } from './names.js';
import type { SeenRequest, ServersConfig } from './protocol.js';

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

const KEPT_BYTES = 64 * 1024;
const KEPT_REQUESTS = 2_000;
const CHUNK = Buffer.alloc(64 * 1024, 'x');
const TYPES: Record<string, string> = { '.html': 'text/html', '.json': 'application/json' };

/** Web servers for every host. The path of a request says how they answer. */
export class WebServers {
  readonly requests: SeenRequest[] = [];

  constructor(
    private readonly config: ServersConfig,
    private readonly names: ZoneServer,
    private readonly contact: (socket: Socket) => void,
  ) {}

  async listen(): Promise<void> {
    const contexts = new Map<string, SecureContext>();
    for (const { names, cert, key } of this.config.certificates) {
      const context = createSecureContext({ cert, key });
      for (const name of names) contexts.set(name, context);
    }
    const [first] = this.config.certificates;
    const secure = createSecureServer({
      allowHTTP1: true,
      cert: first!.cert,
      key: first!.key,
      SNICallback: (name, done) =>
        done(null, contexts.get(name) ?? contexts.get(`*.${name.slice(name.indexOf('.') + 1)}`)),
    });
    const sockets = new WebSocketServer({ noServer: true });
    const answer = (request: Request, response: Response) =>
      void this.answer(request, response).catch(ignore);
    const upgrade = (request: IncomingMessage, socket: Socket, head: Buffer) =>
      sockets.handleUpgrade(request, socket, head, (webSocket) => {
        this.remember(request, '', 0, '');
        webSocket.on('error', ignore);
        webSocket.on('message', (data, isBinary) => webSocket.send(data, { binary: isBinary }));
      });
    const servers = [
      { server: secure, port: 443 },
      { server: createServer(), port: 80 },
      { server: createHttp2Server(), port: 8081 },
    ];
    for (const { server, port } of servers) {
      server.on('request', answer).on('upgrade', upgrade).on('sessionError', ignore).on('clientError', drop);
      server.on('connection', (socket: Socket) => {
        socket.on('error', ignore);
        this.contact(socket);
      });
      server.listen(port, '0.0.0.0');
      await once(server, 'listening');
    }
  }

  private async answer(request: Request, response: Response): Promise<void> {
    request.on('error', ignore);
    response.on('error', ignore);
    const hash = createHash('sha256');
    const kept: Buffer[] = [];
    let bytes = 0;
    const { pathname, searchParams } = new URL(request.url!, 'http://host');
    const [, kind = '', detail = ''] = pathname.split('/');
    if (kind === 'stall-head') return;
    for await (const chunk of request as AsyncIterable<Buffer>) {
      if (bytes < KEPT_BYTES) kept.push(chunk);
      bytes += chunk.length;
      hash.update(chunk);
    }
    const body = Buffer.concat(kept);
    const seen = this.remember(request, body.subarray(0, KEPT_BYTES).toString(), bytes, hash.digest('hex'));
    if (this.demandAuthorization(seen, response)) return;
    if (this.sendFile(seen.host, pathname, response)) return;
    switch (kind) {
      case 'echo':
        send(response, 200, { 'content-type': 'application/json' }, JSON.stringify(seen));
        return;
      case 'echo-back':
        // Every header and the body return as they came.
        send(
          response,
          200,
          {
            ...Object.fromEntries(
              seen.headers
                .filter(([name]) => !name.startsWith(':') && name !== 'transfer-encoding')
                .map(([name, value]) => [`x-echo-${name}`, value]),
            ),
            'content-type': searchParams.get('type') ?? 'text/plain',
          },
          body,
        );
        return;
      case 'dns-query': {
        const reply = await this.names.reply(body, 'https');
        send(response, 200, { 'content-type': 'application/dns-message' }, encode(reply!));
        return;
      }
      case 'redirect':
        send(response, Number(detail) || 302, { location: searchParams.get('to')! }, '');
        return;
      case 'bytes':
        await sendBytes(response, Number(detail));
        return;
      case 'stall':
        response.writeHead(200, { 'content-length': '10' });
        (response as ServerResponse).write('x');
        return;
      case 'split':
        response.writeHead(200, { 'content-type': 'text/plain' });
        for (const byte of `split by ${seen.host}`) {
          (response as ServerResponse).write(byte);
          await sleep(1);
        }
        response.end();
        return;
      case 'reset':
        request.socket.destroy();
        return;
      case 'sse':
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        for (let event = 0; event < 3; event += 1) {
          (response as ServerResponse).write(`data: ${event}\n\n`);
          await sleep(30);
        }
        response.end();
        return;
      case 'grpc':
        response.writeHead(200, { 'content-type': 'application/grpc' });
        (response as ServerResponse).write(body);
        (response as Http2ServerResponse).addTrailers({ 'grpc-status': '0' });
        response.end();
        return;
      default:
        send(response, 200, { 'content-type': 'text/plain' }, `hello from ${seen.host}`);
    }
  }

  /** Clients of git show their credentials only when they are asked. */
  private demandAuthorization({ host, headers }: SeenRequest, response: Response): boolean {
    const demanded = this.config.authorizations[host];
    const given = headers.find(([name]) => name === 'authorization')?.[1];
    if (demanded === undefined || given === demanded) return false;
    send(response, 401, { 'www-authenticate': 'Basic realm="test"' }, 'show who you are');
    return true;
  }

  private sendFile(host: string, pathname: string, response: Response): boolean {
    const root = this.config.files[host];
    if (root === undefined) return false;
    const path = join(root, normalize(decodeURIComponent(pathname)));
    const isFolder = existsSync(path) && statSync(path).isDirectory();
    const file = isFolder ? join(path, 'index.html') : path;
    if (!existsSync(file)) {
      send(response, 404, {}, 'no such file');
      return true;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(response as ServerResponse);
    return true;
  }

  private remember(request: Request, body: string, bytes: number, sha256: string): SeenRequest {
    const socket = request.socket as TLSSocket;
    const headers: [string, string][] = [];
    for (let index = 0; index < request.rawHeaders.length; index += 2) {
      headers.push([request.rawHeaders[index]!.toLowerCase(), request.rawHeaders[index + 1]!]);
    }
    const authority = request.headers[':authority'] ?? request.headers.host ?? '';
    const seen: SeenRequest = {
      host: String(authority).split(':')[0]!,
      to: `${socket.localAddress}:${socket.localPort}`,
      version: request.httpVersion,
      method: request.method!,
      url: request.url!,
      headers,
      body,
      bytes,
      sha256,
    };
    if (socket.encrypted) seen.serverName = (socket as TLSSocket & { servername?: string }).servername ?? '';
    this.requests.push(seen);
    if (this.requests.length > KEPT_REQUESTS) this.requests.shift();
    return seen;
  }
}

function send(
  response: Response,
  status: number,
  headers: Record<string, string>,
  body: string | Buffer,
): void {
  response.writeHead(status, { ...headers, 'content-length': String(Buffer.byteLength(body)) });
  (response as ServerResponse).end(body);
}

async function sendBytes(response: Response, total: number): Promise<void> {
  response.writeHead(200, { 'content-length': String(total), 'content-type': 'application/octet-stream' });
  await pipeline(Readable.from(chunksOf(total)), response as ServerResponse);
}

function* chunksOf(total: number): Generator<Buffer> {
  for (let left = total; left > 0; left -= CHUNK.length) {
    yield left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK;
  }
}

function ignore(): void {
  // Clients of tests go away at any time.
}

function drop(_: Error, socket: Socket): void {
  socket.destroy();
}
