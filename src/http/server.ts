import acceptsPlugin from '@fastify/accepts';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { randomUUID } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { METHODS, STATUS_CODES, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { gaveUp, isDiskFull, isUnreachable, Overloaded, Unconfirmed } from '../db/pool.js';
import { clientNetworkOf } from '../lib/cidr.js';
import { Slots, type SlotLimits } from '../fairness/slots.js';
import { isOutOfDescriptors } from '../lib/descriptor-limit.js';
import { stringifyExact } from '../lib/exact-json.js';
import { sleep } from '../lib/sleep.js';
import { bytesOf, endAdmission } from './admission.js';
import { BeginQueue } from './begin-queue.js';
import { clientAddressOf, peerOf, TrustedProxies, UNIX_PEER } from './client-address.js';
import { Connections } from './connections.js';
import { dropBody } from './drop-body.js';
import { afterLastWord } from './last-word.js';
import { ApiError, type ErrorName } from './errors.js';
import { acceptExpectations, holdsBody, isUnmet } from './expect.js';
import type { OtherMethods } from './other-methods.js';
import { removePrefix, type SplitPath } from './path-prefix.js';
import { RefusalDelays } from './refusal-delays.js';
import type { App } from './route.js';
import { closeOthers } from './listen.js';
import { makeSerializerCompiler } from './serializer.js';
import type { Certificate } from './tls/certificate.js';
import { expectTls } from './tls/handshakes.js';
import { UNREAD, UnreadAnswers, type UnreadLimits } from './unread-answers.js';
import { validatorCompiler } from './validation.js';
import { whenOver } from './when-over.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Bodies of this route may take as long as it takes to send a file. */
    upload?: boolean;
    /** Orchestrators ask it every few seconds: an answer of 200 has no line in the log. */
    probe?: boolean;
  }
  interface FastifyReply {
    /** The code of the error that the request was answered with. */
    refusal: string | null;
  }
}

/** The body of a route that declares no limit. */
export const BODY_LIMIT = 256 * 1024;
/** The bytes in which the request line of an unknown method is looked for. */
const MAX_REQUEST_LINE = 2_048;
/** The pipelined requests of one connection that may be in progress. */
export const MOST_OF_CONNECTION = 100;
export const HEADERS_TIMEOUT_MS = 15_000;
export const KEEP_ALIVE_MS = 72_000;
/** The longest an upload may take. Other bodies have less: `bodyTimeoutMs`. */
export const UPLOAD_TIMEOUT_MS = 60 * 60_000;
const DAY_SECS = 24 * 60 * 60;
const SECURITY_HEADERS = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
} as const;
const SANE_REQUEST_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

export interface ServerSettings {
  bodyTimeoutMs: number;
  connections: SlotLimits;
  trustedProxies: readonly string[];
  hstsDays: number;
  basePath?: string | undefined;
  refusalGapMs?: number;
}

export interface ServerParts {
  /** Adds hooks that see every request, before the first refusal. */
  observe?: ((app: App) => void) | undefined;
  /** Undefined: HTTP without TLS. */
  certificate?: Certificate | undefined;
  /** Aborts before the service stops. */
  draining?: AbortSignal | undefined;
  /** The organization of a request whose key was valid lately. */
  ownerOf?: (request: IncomingMessage) => string | undefined;
  /** Undefined: a method that a path does not take is 404. */
  others?: OtherMethods;
  /** Whether requests begin in turns. Default: true. */
  hasTurns?: boolean;
  unread?: UnreadLimits;
  /** Takes a part of the path away before a route is looked for. Undefined: the path has no such part. */
  split?: (url: string) => SplitPath | undefined;
}

export function makeServer(
  log: FastifyBaseLogger,
  { bodyTimeoutMs, connections: limits, trustedProxies, hstsDays, basePath, refusalGapMs }: ServerSettings,
  {
    observe,
    certificate,
    draining,
    ownerOf,
    others,
    hasTurns = true,
    unread = UNREAD,
    split = whole,
  }: ServerParts = {},
): App {
  const routedPath = (target: string) => {
    const url = withoutBase(target, basePath);
    return split(url)?.url ?? url;
  };
  const headersTimeout = Math.min(HEADERS_TIMEOUT_MS, bodyTimeoutMs);
  const app = Fastify({
    loggerInstance: log,
    // The hook below logs one line a request, with the route instead of the URL.
    logController: new LogController({ disableRequestLogging: true }),
    requestIdHeader: false,
    genReqId: (request: IncomingMessage) => requestIdOf(request),
    bodyLimit: BODY_LIMIT,
    requestTimeout: UPLOAD_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    http: {
      // Also ends connections that send nothing.
      headersTimeout,
      connectionsCheckingInterval: Math.ceil(headersTimeout / 4),
      // Node's own refusal has no body: the hook below refuses instead.
      requireHostHeader: false,
    },
    // Requests that arrive on open connections while we stop are still answered; then the connections close.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    rewriteUrl: (request: IncomingMessage) =>
      removePrefix(request, withoutBase(request.url ?? '/', basePath), split),
    routerOptions: { maxParamLength: 16_384 },
    frameworkErrors: (error, request, reply) => {
      void reply.headers(SECURITY_HEADERS).header('x-request-id', request.id);
      answerWith(toApiError(error, request), request, reply);
    },
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket, others, routedPath),
  }).withTypeProvider<TypeBoxTypeProvider>();

  const closeHandshakes = certificate && expectTls(app.server, certificate, answerPlainHttp);
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(makeSerializerCompiler());
  const delays = new RefusalDelays(refusalGapMs);
  const closing = new AbortController();
  setMaxListeners(0, closing.signal);
  app.setErrorHandler((error, request, reply) => {
    const refusal = toApiError(error, request);
    if (refusal.status !== 429) return answerWith(refusal, request, reply);
    endAdmission(request);
    const delayMs = delays.next(request.caller?.orgId ?? clientNetworkOf(clientAddressOf(request)));
    if (delayMs === undefined) return void request.raw.socket.destroy();
    void answerLate(delayMs, refusal, request, reply);
  });
  async function answerLate(delayMs: number, ...answer: Parameters<typeof answerWith>): Promise<void> {
    await sleep(delayMs, closing.signal);
    answerWith(...answer);
  }
  app.removeAllContentTypeParsers();
  void app.register(acceptsPlugin);
  const proxies = new TrustedProxies(trustedProxies);
  app.decorateRequest('client', {
    getter() {
      return proxies.clientOf(this.raw);
    },
  });
  app.decorateRequest('caller', null);
  app.decorateRequest('countMore', null);
  app.decorateRequest('context', null);
  app.decorateRequest('span', null);
  app.decorateReply('refusal', null);
  observe?.(app);

  acceptExpectations(app.server);
  app.server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy());
    endWith(socket, new ApiError('not_supported', 'this service is not a proxy: CONNECT is not supported'));
  });

  const noRoom = new ApiError('not_ready', 'too many connections are open: close some, or try again', null, {
    headers: { 'retry-after': '1' },
  });
  const proxied = new Slots({ total: Infinity, each: limits.each });
  const connections = new Connections(limits, proxies, log, (socket) => {
    // Before the handshake, an answer would be no TLS.
    if (certificate && peerOf(socket) !== UNIX_PEER) socket.destroy();
    else endWith(socket, noRoom);
  });
  const begins = new BeginQueue(
    (request) => ownerOf?.(request) ?? clientNetworkOf(proxies.clientOf(request).address),
  );
  if (hasTurns) begins.watch(app.server);
  // It counts a request on its connection also while this waits to begin.
  connections.watch(app.server);

  // These hooks use callbacks: a promise for each request would cost microseconds.
  app.addHook('onRequest', (request, reply, done) => {
    void reply.headers(SECURITY_HEADERS).header('x-request-id', request.id);
    if (hstsDays > 0 && request.client.isHttps) {
      void reply.header('strict-transport-security', `max-age=${hstsDays * DAY_SECS}`);
    }
    // No route upgrades the protocol.
    if (request.headers.upgrade !== undefined) void reply.header('connection', 'close');
    hurry(request, reply, bodyTimeoutMs);
    const count = connections.begin(request.raw);
    if (count === undefined) throw noRoom;
    if (count > MOST_OF_CONNECTION) {
      const message = `more than ${MOST_OF_CONNECTION} requests are under way on this connection`;
      throw new ApiError('rate_limited', message, null, {
        headers: { connection: 'close', 'retry-after': '1' },
      });
    }
    if (request.client.isProxied) {
      const release = proxied.acquire(clientNetworkOf(request.client.address));
      if (!release) throw tooMany(limits.each);
      whenOver(reply, release);
    }
    if (request.headers.host === undefined && request.raw.httpVersion === '1.1') {
      const message = 'an HTTP/1.1 request needs a Host header: send the host and port of the URL in it';
      throw new ApiError('invalid_request', message, null, { headers: { connection: 'close' } });
    }
    // Node takes the first one. A proxy in front may have judged another (RFC 9112, section 3.2).
    if (hasSeveralHosts(request.raw)) {
      const message = 'a request has one Host header: send the host and port of the URL in it';
      throw new ApiError('invalid_request', message, null, { headers: { connection: 'close' } });
    }
    if (isUnmet(request.raw)) {
      throw new ApiError('expectation_failed', undefined, null, { headers: { connection: 'close' } });
    }
    // Refused before the body is read.
    if (request.is404) throw others?.refusalOf(request) ?? new ApiError('route_not_found');
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    // An aborted answer does not get here; its connection ends.
    connections.end(request.raw.socket);
    const { method, routeOptions, caller } = request;
    if (routeOptions.config.probe === true && reply.statusCode === 200) return done();
    request.log.info(
      {
        method,
        route: routeOptions.url ?? null,
        status: reply.statusCode,
        ms: Math.round(reply.elapsedTime * 10) / 10,
        orgId: caller?.orgId ?? null,
        address: clientAddressOf(request),
      },
      'request answered',
    );
    done();
  });
  // Otherwise a connection with a request in progress would stay open after its answer and delay the close.
  app.addHook('preClose', async () => {
    closing.abort();
    closeHandshakes?.();
    // Their connections close with those of the app.
    void closeOthers(app);
    return Promise.resolve();
  });
  const unreadAnswers = new UnreadAnswers(unread);
  app.addHook('onSend', (request, reply, payload, done) => {
    const owner = request.caller?.orgId ?? clientNetworkOf(clientAddressOf(request));
    unreadAnswers.hold(owner, reply, bytesOf(payload));
    if (
      closing.signal.aborted ||
      draining?.aborted === true ||
      (request.headers.expect !== undefined && holdsBody(request.raw))
    )
      void reply.header('connection', 'close');
    done();
  });
  app.setNotFoundHandler(() => {
    throw new ApiError('route_not_found');
  });
  return app;
}

function hasSeveralHosts({ rawHeaders }: IncomingMessage): boolean {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === 'host') count += 1;
  }
  return count > 1;
}

function tooMany(limit: number): ApiError {
  const message = `more than ${limit} requests of this address are in progress: wait for their answers`;
  return new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
}

/** Splits no path. */
function whole(): undefined {
  return undefined;
}

/** A proxy may have removed the base path. */
function withoutBase(url: string, basePath = ''): string {
  if (basePath === '') return url;
  const rest = url.slice(basePath.length);
  if (!url.startsWith(basePath) || !/^([/?]|$)/.test(rest)) return url;
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** A slow body holds a connection and memory. Node has one time-out for all routes; uploads need a longer one. */
function hurry({ raw, routeOptions }: FastifyRequest, reply: FastifyReply, millis: number): void {
  if (raw.headers['content-length'] === undefined && raw.headers['transfer-encoding'] === undefined) return;
  const late = () => {
    if (!raw.complete && !reply.raw.writableFinished && (routeOptions.config.upload !== true || reply.sent)) {
      answerBrokenRequest(Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), raw.socket);
    }
  };
  const timer = setTimeout(late, millis);
  for (const event of ['end', 'close']) raw.once(event, () => clearTimeout(timer));
  reply.raw.once('finish', () => {
    if (raw.complete) return;
    const cancel = afterLastWord(raw.socket, () => raw.complete || raw.socket.destroy());
    for (const event of ['end', 'close']) raw.once(event, cancel);
  });
}

/** Node caches randomness for these ids: 0.4 microseconds, instead of 8 for version 7. */
function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && SANE_REQUEST_ID.test(given) ? given : randomUUID();
}

/** Translates refusals of Fastify. */
const FRAMEWORK_ERRORS: Record<string, ErrorName> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_BAD_URL: 'invalid_request',
};

function toApiError(error: unknown, request: FastifyRequest): ApiError {
  if (error instanceof ApiError) return error;
  if (error === request.raw.errored) return new ApiError('invalid_request', 'the body did not come whole');
  const code = (error as FastifyError).code;
  const known = FRAMEWORK_ERRORS[code];
  if (code === 'FST_ERR_BAD_URL')
    return new ApiError('invalid_request', 'the URL has an escape that is not valid');
  if (known) return new ApiError(known, undefined, null, { cause: error });
  if (error instanceof Overloaded || gaveUp(error)) {
    const message = 'the database does not keep up with what is asked';
    const cause = error instanceof Overloaded ? error.cause : error;
    return new ApiError('not_ready', message, null, { headers: { 'retry-after': '1' }, cause });
  }
  if (isDiskFull(error)) {
    const message = 'the disk of the database is full: ask the operator to make room';
    return new ApiError('storage_full', message, null, { headers: { 'retry-after': '5' }, cause: error });
  }
  if (isOutOfDescriptors(error)) {
    const message = 'the service is out of file descriptors: ask the operator to raise its limit';
    return new ApiError('not_ready', message, null, { headers: { 'retry-after': '1' }, cause: error });
  }
  if (error instanceof Unconfirmed) {
    const message = 'the database has not confirmed the write in time: it may have been carried out';
    return new ApiError('not_ready', message, null, { headers: { 'retry-after': '5' }, cause: error });
  }
  if (isUnreachable(error)) {
    return new ApiError('not_ready', undefined, null, { headers: { 'retry-after': '1' }, cause: error });
  }
  // The library that serves files refuses ranges and conditions with errors of its own.
  if (isRefusal(error) && /^\/(docs|console)/.test(request.routeOptions.url ?? '')) {
    return new ApiError('invalid_request', undefined, null, { cause: error });
  }
  return new ApiError('internal_error', undefined, { request_id: request.id }, { cause: error });
}

function isRefusal(error: unknown): boolean {
  const { statusCode } = error as Partial<FastifyError>;
  return statusCode !== undefined && statusCode >= 400 && statusCode < 500;
}

function answerWith(refusal: ApiError, request: FastifyRequest, reply: FastifyReply): void {
  dropBody(request.raw);
  if (refusal.cause !== undefined && refusal.status >= 500) {
    request.log.error({ err: refusal.cause }, 'request failed');
  }
  // Fastify closes the connection of a body that it refuses, which can lose the answer.
  if (request.headers.upgrade === undefined) void reply.removeHeader('connection');
  reply.refusal = refusal.code;
  void reply
    .code(refusal.status)
    .headers(refusal.headers)
    .type('application/json; charset=utf-8')
    // A string skips the schema of the route.
    .serializer((body: unknown) => body as string)
    .send(stringifyExact(refusal.body));
}

/** Answers broken, oversized or slow HTTP, which never becomes a request, with the envelope. */
function answerBrokenRequest(
  error: NodeJS.ErrnoException & { rawPacket?: unknown },
  socket: Socket,
  others?: OtherMethods,
  routedPath = (url: string) => url,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new ApiError('headers_too_large')
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new ApiError('request_timeout')
        : (error.code === 'HPE_INVALID_METHOD' && refusalOfMethod(error.rawPacket, others, routedPath)) ||
          new ApiError('invalid_request', 'this is not an HTTP/1.1 request');
  endWith(socket, refusal);
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) (\S+) HTTP\/1\.[01]\r?\n/;

/**
 * The parser of Node 20 does not know QUERY, which later ones do. A pipelined request before it has a method that the
 * parser knows.
 */
function refusalOfMethod(
  packet: unknown,
  others: OtherMethods | undefined,
  routedPath: (url: string) => string,
): ApiError | undefined {
  const [, method = '', target = ''] =
    REQUEST_LINE.exec(Buffer.isBuffer(packet) ? packet.toString('latin1', 0, MAX_REQUEST_LINE) : '') ?? [];
  if (method === '' || METHODS.includes(method)) return undefined;
  return others?.refusalOf({ method, url: routedPath(target) });
}

function answerPlainHttp(socket: Socket): void {
  const message = 'this port speaks HTTPS: write https:// in the URL';
  endWith(socket, new ApiError('invalid_request', message));
  // Unread bytes would reset the connection before the client has the answer.
  socket.resume();
}

function endWith(socket: Duplex, refusal: ApiError): void {
  const body = stringifyExact(refusal.body);
  socket.end(
    [
      `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
      'content-type: application/json; charset=utf-8',
      `content-length: ${Buffer.byteLength(body)}`,
      ...Object.entries({ ...SECURITY_HEADERS, ...refusal.headers }).map(
        ([name, value]) => `${name}: ${value}`,
      ),
      `x-request-id: ${randomUUID()}`,
      'connection: close',
      '',
      body,
    ].join('\r\n'),
  );
  // The client may keep its side open.
  afterLastWord(socket, () => socket.destroy());
}
