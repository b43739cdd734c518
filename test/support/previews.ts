import { getEventListeners, once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type RequestListener } from 'node:http';
import {
  connect,
  createServer as createTcpServer,
  type AddressInfo,
  type Server,
  type Socket,
} from 'node:net';
import { onTestFinished } from 'vitest';
import { TrustedProxies } from '../../src/http/client-address.js';
import type { Certificate } from '../../src/http/tls/certificate.js';
import { makeLog } from '../../src/lib/log.js';
import { NO_METERS, type Meters } from '../../src/lib/meters.js';
import { PREVIEW_LIMITS } from '../../src/previews/bounds.js';
import { answerError } from '../../src/previews/answer.js';
import { PreviewHosts } from '../../src/previews/host.js';
import { PreviewListener } from '../../src/previews/listener.js';
import { Serving, type ServingParts } from '../../src/previews/serve.js';
import type { HostForm, PreviewAccess, PreviewTarget, PreviewWaker } from '../../src/previews/types.js';
import { ApiError } from '../../src/http/errors.js';
import { PortRefusedError } from '../../src/sandboxes/ports/guest-stream.js';

const SANDBOX = '0192d3a4-0000-7000-8000-00000000002a';

export interface PreviewOptions {
  certificate?: Certificate;
  hostForm?: HostForm;
  trusted?: string[];
  limits?: Partial<ServingParts['limits']>;
  waker?: PreviewWaker;
  target?: Partial<PreviewTarget>;
  openPort?: ServingParts['openPort'];
  serve?: PreviewAccess['serve'];
  keepAliveMs?: number;
}

export interface TestPreviews {
  hosts: PreviewHosts;
  /** The port of the listener. */
  port: number;
  /** The Host header of port 3000 of the sandbox. */
  host: string;
  /** Ends the grant of every request. */
  revoke(this: void): void;
  /** The listeners to the end of the grant. Without one, the grant is not in use. */
  grantListeners(this: void): number;
  /** The open connections of HTTP/2. */
  sessions(this: void): number;
  /** The connections to the sandbox so far. */
  opened(this: void): number;
  meters: { outcomes: string[]; added: number[]; bytes: Record<'in' | 'out', number>; open: number };
  logs: string[];
  close(this: void): Promise<void>;
}

/** A listener of previews before `sandbox`, on the loopback address. Requests have a grant unless they say "no". */
export async function startPreviews(sandbox: Server, options: PreviewOptions = {}): Promise<TestPreviews> {
  await once(sandbox.listen(0, '127.0.0.1'), 'listening');
  const inner = (sandbox.address() as AddressInfo).port;
  const scheme = options.certificate ? 'https' : 'http';
  const hosts = new PreviewHosts('localhost', scheme, undefined);
  const logs: string[] = [];
  const log = makeLog('debug', { write: (line: string) => void logs.push(line) });
  const proxies = new TrustedProxies(options.trusted ?? []);
  let grant = new AbortController();
  let opened = 0;
  const seen: TestPreviews['meters'] = { outcomes: [], added: [], bytes: { in: 0, out: 0 }, open: 0 };
  const meters: Meters = {
    ...NO_METERS,
    previewAnswered(outcome, seconds) {
      seen.outcomes.push(outcome);
      if (seconds !== undefined) seen.added.push(seconds);
    },
    previewMoved: (direction, bytes) => void (seen.bytes[direction] += bytes),
    previewOpened: (_kind, change) => void (seen.open += change),
  };
  const access: PreviewAccess = {
    judge(host, headers) {
      if (headers['x-test-grant'] === 'no') return Promise.resolve({ refused: 'no_grant' });
      const target = {
        ...host,
        orgId: 'org',
        previewId: 'preview',
        hostForm: options.hostForm ?? ('outer' as const),
        wakes: options.waker !== undefined,
        status: 'running',
        ...options.target,
      };
      return Promise.resolve({ target, signal: grant.signal });
    },
    serve:
      options.serve ??
      ((_host, request, response) =>
        Promise.resolve(answerError(request, response, new ApiError('route_not_found')))),
    refuse: (_host, _refused, request, response) =>
      Promise.resolve(answerError(request, response, new ApiError('invalid_session'))),
  };
  const serving = new Serving({
    log,
    hosts,
    access,
    waker: options.waker,
    proxies,
    meters,
    limits: { ...PREVIEW_LIMITS, ...options.limits },
    openPort:
      options.openPort ??
      (async ({ port }, signal) => {
        const socket = connect({ host: '127.0.0.1', port: inner, allowHalfOpen: true, noDelay: true });
        socket.on('error', () => undefined);
        const stop = () => socket.destroy();
        signal.addEventListener('abort', stop);
        await once(socket, 'connect').catch(() => {
          throw new PortRefusedError(port);
        });
        opened += 1;
        return socket;
      }),
  });
  const listener = new PreviewListener(
    {
      log,
      limits: { total: 2_000, each: 2_000 },
      proxies,
      certificate: options.certificate,
      keepAliveMs: options.keepAliveMs,
    },
    {
      request: (request, response) => serving.request(request, response),
      upgrade: (request, socket, head) => serving.upgrade(request, socket, head),
    },
  );
  const port = await listener.listen('127.0.0.1', 0);
  hosts.listensAt(port);
  const inside = new Set<Socket>();
  sandbox.on('connection', (socket: Socket) => {
    inside.add(socket);
    socket.on('error', () => undefined).once('close', () => inside.delete(socket));
  });
  let closed: Promise<void> | undefined;
  const closeAll = async () => {
    await listener.close();
    serving.close();
    for (const socket of inside) socket.destroy();
    sandbox.close();
  };
  const close = () => (closed ??= closeAll());
  onTestFinished(close);
  return {
    hosts,
    port,
    host: new URL(hosts.originOf({ port: 3000, sandboxId: SANDBOX })).host,
    revoke() {
      grant.abort();
      grant = new AbortController();
    },
    grantListeners: () => getEventListeners(grant.signal, 'abort').length,
    sessions: () => listener['sessions'].size,
    opened: () => opened,
    meters: seen,
    logs,
    close,
  };
}

export function httpSandbox(listener: RequestListener): ReturnType<typeof createServer> {
  const server = createServer(listener);
  server.keepAliveTimeout = 60_000;
  return server;
}

/** A server that answers each connection with these bytes, once it has got something. */
export function rawSandbox(answer: string | ((socket: Socket, data: string) => void)): Server {
  return createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', (data) => {
      if (typeof answer === 'function') answer(socket, data.toString('latin1'));
      else socket.write(answer, 'latin1');
    });
  });
}

export interface TestAnswer {
  status: number;
  headers: IncomingMessage['headers'];
  rawHeaders: string[];
  trailers: IncomingMessage['trailers'];
  text: string;
}

export interface Asked {
  method?: string;
  path?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
}

/** A request with the Host header of the preview. Rejects when the answer breaks off. */
export function ask(
  { port, host }: Pick<TestPreviews, 'port' | 'host'>,
  { method = 'GET', path = '/', headers = {}, body }: Asked = {},
): Promise<TestAnswer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      host: '127.0.0.1',
      port,
      method,
      path,
      headers: { host, ...headers },
      agent: false,
    });
    request.on('error', reject).on('response', (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      answer.on('error', reject).on('end', () => {
        const { statusCode, headers: found, rawHeaders, trailers } = answer;
        resolve({ status: statusCode!, headers: found, rawHeaders, trailers, text });
      });
    });
    request.end(body);
  });
}
