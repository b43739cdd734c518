import {
  request as httpRequest,
  ServerResponse,
  type Agent,
  type ClientRequest,
  type IncomingMessage,
} from 'node:http';
import type { Http2ServerRequest } from 'node:http2';
import { ApiError } from '../../http/errors.js';
import { isUnmet } from '../../http/expect.js';
import { breakOff, onceOver } from '../answer.js';
import { requestHeaders, trailersOf, type RawHeaders } from '../headers.js';
import { relayAnswer } from './answer.js';
import { copy } from './copy.js';
import { MAX_ANSWER_HEAD, MOST_INTERIM, SILENCE_MS, type Exchange } from './exchange.js';
import type { UpstreamOptions, Upstreams } from './upstreams.js';

/** They may be sent again: a kept connection may have been closed by the server in the same moment. */
const REPEATABLE = new Set(['GET', 'HEAD', 'OPTIONS']);
/** Servers expect a length with these methods. */
const WITH_BODY = new Set(['POST', 'PUT', 'PATCH']);

/**
 * Forwards a request and relays the answer. Resolves when the exchange is over. Rejects when no answer has begun. The
 * body is then unread if no connection to the sandbox was opened.
 */
export async function forwardHttp(exchange: Exchange, upstreams: Upstreams): Promise<void> {
  const framing = framingOf(exchange.request);
  const canRepeat = framing.length === 0 && REPEATABLE.has(exchange.request.method ?? '');
  const isOver = canRepeat && (await new Attempt(exchange, upstreams.kept, framing).run()) === 'over';
  if (!isOver) await new Attempt(exchange, upstreams.single, framing).run();
}

/** `stale`: a kept connection was closed before the request arrived. */
type Outcome = 'over' | 'stale';

class Attempt {
  private upstream!: ClientRequest;
  private isOver = false;
  private interim = 0;
  private silence: NodeJS.Timeout | undefined;
  private resolve!: (outcome: Outcome) => void;
  private reject!: (error: unknown) => void;

  constructor(
    private readonly exchange: Exchange,
    private readonly agent: Agent,
    private readonly framing: RawHeaders,
  ) {}

  run(): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
      const { request, response } = this.exchange;
      this.upstream = sendHead(this.exchange, this.agent, this.framing);
      this.listen();
      this.silence = setTimeout(() => this.fail(new ApiError('no_answer_of_sandbox')), SILENCE_MS);
      onceOver(request, response, () => this.over('over', true));
      if (this.framing.length === 0) this.upstream.end();
    });
  }

  private listen(): void {
    const { upstream, exchange } = this;
    const { response } = exchange;
    upstream.once('socket', () => {
      exchange.connected();
      if (this.framing.length > 0) this.sendBody();
    });
    upstream.on('continue', () => {
      if (response instanceof ServerResponse && !response.headersSent) response.writeContinue();
    });
    upstream.on('information', () => {
      this.interim += 1;
      if (this.interim > MOST_INTERIM) this.fail(new ApiError('no_answer_of_sandbox'));
    });
    upstream.once('response', (answer) => this.relay(answer));
    upstream.on('error', (error) => {
      if (upstream.reusedSocket && !response.headersSent) this.over('stale', true);
      else this.fail(error);
    });
    // A server that upgrades unasked loses its connection without an error.
    upstream.once('close', () => {
      if (!response.headersSent) this.fail(new ApiError('no_answer_of_sandbox'));
    });
  }

  private sendBody(): void {
    const { upstream, exchange } = this;
    const { request } = exchange;
    upstream.flushHeaders();
    const moved = (bytes: number) => this.moved('in', bytes);
    const end = copy(request, upstream, { moved, stalled: this.abandon, stallMs: SILENCE_MS });
    request.once('end', () => {
      end();
      if (upstream.destroyed) return;
      const trailers = trailersOf(request.rawTrailers);
      if (trailers.length > 0 && upstream.chunkedEncoding) upstream.addTrailers(trailers);
      upstream.end();
    });
  }

  private relay(answer: IncomingMessage): void {
    const { response, target } = this.exchange;
    try {
      relayAnswer(answer, {
        response,
        target,
        moved: this.moved,
        broken: this.abandon,
        ended: () => this.over('over', !this.upstream.writableFinished || !this.upstream.shouldKeepAlive),
      });
    } catch (error) {
      this.fail(error);
    }
  }

  private readonly moved: Exchange['moved'] = (direction, bytes) => {
    this.silence?.refresh();
    return this.exchange.moved(direction, bytes);
  };

  private readonly abandon = (): void => {
    breakOff(this.exchange.response);
    this.over('over', true);
  };

  private fail(error: unknown): void {
    if (this.isOver) return;
    if (this.exchange.response.headersSent) return this.abandon();
    this.end(true);
    this.reject(error);
  }

  /** `closes`: the connection to the sandbox is of no further use, such as after an answer before the whole body. */
  private over(outcome: Outcome, closes: boolean): void {
    if (this.isOver) return;
    this.end(closes);
    this.resolve(outcome);
  }

  private end(closes: boolean): void {
    this.isOver = true;
    clearTimeout(this.silence);
    if (closes) this.upstream?.destroy();
  }
}

/** Throws an ApiError for a request that cannot be written in HTTP/1.1. */
function sendHead(exchange: Exchange, agent: Agent, framing: RawHeaders): ClientRequest {
  const { request, target, sender } = exchange;
  const options: UpstreamOptions = {
    agent,
    target,
    method: request.method ?? 'GET',
    path: request.url ?? '/',
    // A server that refuses a body early closes its connection otherwise, and the answer would be lost.
    headers: [...requestHeaders(request, target, sender), ...framing, 'Connection', 'keep-alive'],
    setHost: false,
    maxHeaderSize: MAX_ANSWER_HEAD,
    insecureHTTPParser: false,
  };
  try {
    return httpRequest(options);
  } catch (cause) {
    const message = 'the request has characters that HTTP/1.1 does not allow: encode them';
    throw new ApiError('invalid_request', message, null, { cause });
  }
}

/** The headers of the body. None: the request has no body. */
function framingOf(request: Exchange['request']): RawHeaders {
  const { headers, method = '', httpVersionMajor } = request;
  // Node allows the body of a request of HTTP/2 by itself.
  const isHeld =
    httpVersionMajor === 1 && headers.expect !== undefined && !isUnmet(request as IncomingMessage);
  const expect = isHeld ? ['Expect', '100-continue'] : [];
  const length = headers['content-length'];
  if (length !== undefined) return ['Content-Length', length, ...expect];
  const hasBody =
    httpVersionMajor === 1
      ? headers['transfer-encoding'] !== undefined
      : !(request as Http2ServerRequest).stream.endAfterHeaders;
  if (hasBody) return ['Transfer-Encoding', 'chunked', ...expect];
  return WITH_BODY.has(method) ? ['Content-Length', '0'] : [];
}
