import {
  connect,
  constants,
  type ClientHttp2Session,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
} from 'node:http2';
import { ApiError } from '../../http/errors.js';
import { breakOff } from '../answer.js';
import { answerHeaders, asHttp2, requestHeaders, trailersOf, type RawHeaders } from '../headers.js';
import { copy } from './copy.js';
import { MAX_ANSWER_HEAD, MOST_INTERIM, STALL_MS, type Exchange } from './exchange.js';
import type { Upstreams } from './upstreams.js';

/** gRPC-Web is plain HTTP. */
const GRPC = /^application\/grpc(?!-web)([+;]|$)/i;
/** The bytes of all streams of a connection that a client has not read. One stream has at most 64 KiB of them. */
const WINDOW = 1024 * 1024;

export interface GrpcExchange extends Exchange {
  request: Http2ServerRequest;
  response: Http2ServerResponse;
}

/** gRPC needs HTTP/2 on both sides, for its trailers. */
export function isGrpc(exchange: Exchange): exchange is GrpcExchange {
  return exchange.request.httpVersionMajor === 2 && GRPC.test(exchange.request.headers['content-type'] ?? '');
}

/** Connections of HTTP/2 without TLS to ports of sandboxes: one for each connection of a client and each port. */
export class GrpcUpstreams {
  private readonly sessions = new WeakMap<ServerHttp2Session, Map<string, Promise<ClientHttp2Session>>>();

  constructor(private readonly upstreams: Upstreams) {}

  /** Resolves when the exchange is over. Rejects when no answer has begun. */
  async forward(exchange: GrpcExchange): Promise<void> {
    const { request, response, target, sender } = exchange;
    const session = await this.sessionOf(request.stream.session as ServerHttp2Session, exchange);
    // The grant or the client may have gone while the port was opened.
    if (request.stream.destroyed) return;
    exchange.connected();
    const headers: OutgoingHttpHeaders = {
      ...asHttp2(requestHeaders(request, target, sender)),
      ':method': request.method,
      ':path': request.url,
      te: 'trailers',
    };
    headers[':authority'] = headers['host'];
    delete headers['host'];
    const upstream = session.request(headers, { endStream: request.stream.endAfterHeaders });
    await new Promise<void>((resolve, reject) => {
      const abandon = () => {
        upstream.close(constants.NGHTTP2_CANCEL);
        breakOff(response);
        resolve();
      };
      upstream.once('close', () => {
        if (!response.headersSent) return reject(new ApiError('no_answer_of_sandbox'));
        if (!response.writableEnded && !response.stream.writableEnded)
          response.stream.close(upstream.rstCode || constants.NGHTTP2_INTERNAL_ERROR);
        resolve();
      });
      upstream.on('error', () => undefined);
      let interim = 0;
      upstream.on('headers', () => {
        interim += 1;
        if (interim > MOST_INTERIM) upstream.close(constants.NGHTTP2_CANCEL);
      });
      response.once('close', () => {
        if (!upstream.closed) upstream.close(constants.NGHTTP2_CANCEL);
        resolve();
      });
      upstream.once('response', (answer, flags, raw?: string[]) => {
        try {
          const headers = asHttp2(answerHeaders(withoutPseudo(answer, raw), answer, target));
          if (hasNoBody(flags)) {
            // Clients read the status of a failed call there only if the stream ends with these headers.
            response.stream.respond(
              { ...headers, ':status': Number(answer[':status']) },
              { endStream: true },
            );
            return;
          }
          response.writeHead(Number(answer[':status']), headers);
        } catch {
          return abandon();
        }
        copy(upstream, response, {
          moved: (bytes) => exchange.moved('out', bytes),
          stalled: abandon,
          stallMs: STALL_MS,
        });
        upstream.once('end', () => response.end());
      });
      upstream.once('trailers', (trailers) => {
        response.addTrailers(asHttp2(trailersOf(withoutPseudo(trailers)).flat()));
      });
      if (!request.stream.endAfterHeaders) {
        copy(request, upstream, {
          moved: (bytes) => exchange.moved('in', bytes),
          stalled: abandon,
          stallMs: STALL_MS,
        });
        request.once('end', () => upstream.end());
      }
    });
  }

  private sessionOf(client: ServerHttp2Session, exchange: Exchange): Promise<ClientHttp2Session> {
    const { sandboxId, port, previewId } = exchange.target;
    const key = `${sandboxId} ${port} ${previewId}`;
    let known = this.sessions.get(client);
    if (!known) this.sessions.set(client, (known = new Map()));
    const open = known.get(key) ?? this.open(client, exchange, () => known.delete(key));
    known.set(key, open);
    return open;
  }

  private async open(
    client: ServerHttp2Session,
    { target }: Exchange,
    forget: () => void,
  ): Promise<ClientHttp2Session> {
    try {
      const socket = await this.upstreams.connect(target);
      // A session that is destroyed in this turn still announces its connection, and throws there.
      if (client.destroyed || client.closed) {
        socket.destroy();
        throw new ApiError('no_answer_of_sandbox');
      }
      const session = connect(`http://localhost:${target.port}`, {
        createConnection: () => socket,
        maxReservedRemoteStreams: 0,
        settings: { enablePush: false, maxHeaderListSize: MAX_ANSWER_HEAD },
      });
      session.on('error', forget).once('close', forget).once('goaway', forget);
      session.once('connect', () => {
        if (!session.destroyed) session.setLocalWindowSize(WINDOW);
      });
      socket.once('close', () => session.destroy());
      client.once('close', () => session.destroy());
      return session;
    } catch (error) {
      forget();
      throw error;
    }
  }
}

/** Whether the headers end the stream of HTTP/2. */
function hasNoBody(flags: number): boolean {
  return (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
}

function withoutPseudo(headers: IncomingHttpHeaders, raw?: string[]): RawHeaders {
  const flat =
    raw ??
    Object.entries(headers).flatMap(([name, value]) => [value].flat().flatMap((one) => [name, String(one)]));
  return flat.filter((_text, at) => !flat[at - (at % 2)]!.startsWith(':'));
}
