import {
  connect,
  constants,
  performServerHandshake,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type Http2Session,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import type { Sides } from './connection.js';
import { refusalHeaders, refusalText, type Refusal } from './refusal.js';
import { refuseHost } from './request-host.js';

const MIB = 1_048_576;
/** A peer may send so much of one request, and of all of a connection, before the other side has read it. */
const STREAM_WINDOW = MIB;
const CONNECTION_WINDOW = 4 * MIB;
/** A limit of Node in MB, for header blocks and unread bytes. Its default is less than the windows. */
const SESSION_MEMORY = 32;
const SETTINGS: Settings = {
  enablePush: false,
  initialWindowSize: STREAM_WINDOW,
  maxConcurrentStreams: 128,
  maxHeaderListSize: 65_536,
};
/** Fields of one connection, which HTTP/2 does not allow. */
const OF_CONNECTION = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
];
const { NGHTTP2_CANCEL, NGHTTP2_FLAG_END_STREAM, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants;

/** Forwards HTTP/2: each request is a stream of a connection to the server that only this client uses. */
export function serveHttp2({ connection, client: socket, upstream }: Sides): void {
  const { name, encrypted } = connection.to;
  const scheme = encrypted ? 'https' : 'http';
  const server = connect(`${scheme}://${name}`, {
    createConnection: () => upstream.socket,
    settings: SETTINGS,
    maxSessionMemory: SESSION_MEMORY,
  });
  const client = performServerHandshake(socket as never, {
    settings: SETTINGS,
    maxSessionMemory: SESSION_MEMORY,
  });
  for (const session of [server, client])
    session.once('connect', () => session.setLocalWindowSize(CONNECTION_WINDOW));
  joinSessions(client, server, socket);
  client.on('stream', (stream, headers, flags) => {
    stream.on('error', () => {});
    const refusal = refuse(headers, { connection });
    if (refusal) {
      if (refusal.code === 'network_policy_denied') connection.deny(refusal);
      return answer(stream, refusal);
    }
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0;
    const outgoing = open(server, { ...forwarded(headers), ':scheme': scheme }, endStream);
    if (!outgoing) return stream.close(NGHTTP2_REFUSED_STREAM);
    relay(stream, outgoing, endStream);
  });
}

/** The end of one side is that of the other. Streams under way are completed. */
function joinSessions(client: ServerHttp2Session, server: ClientHttp2Session, socket: Duplex): void {
  const endAll = (session: Http2Session) => {
    if (!session.closed && !session.destroyed) session.close();
  };
  client.on('error', () => server.destroy()).on('close', () => server.destroy());
  server.on('error', () => client.destroy());
  server.on('goaway', () => endAll(client)).on('close', () => endAll(client));
  socket.once('close', () => server.destroy());
}

function refuse(
  headers: IncomingHttpHeaders,
  { connection }: Pick<Sides, 'connection'>,
): Refusal | undefined {
  const { to } = connection;
  const { ':authority': authority = headers.host, host } = headers;
  if (headers[':method'] === 'CONNECT') {
    return {
      status: 403,
      code: 'network_policy_denied',
      message: 'a tunnel through another server is not allowed: connect to its destination itself',
      domain: authority ?? '',
    };
  }
  const refusal = refuseHost(to, host !== undefined && host !== authority ? undefined : authority);
  // RFC 9110, 15.5.20: the client tries again on a connection of its own.
  return refusal?.status === 403 ? { ...refusal, status: 421 } : refusal;
}

/** Undefined: the server takes no more requests. The client may send it again elsewhere. */
function open(
  server: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  endStream: boolean,
): ClientHttp2Stream | undefined {
  if (server.closed || server.destroyed) return undefined;
  try {
    return server.request(headers, { endStream, waitForTrailers: !endStream });
  } catch {
    return undefined;
  }
}

function relay(stream: ServerHttp2Stream, outgoing: ClientHttp2Stream, isWhole: boolean): void {
  if (!isWhole) relayTrailers(stream, outgoing);
  stream.pipe(outgoing);
  outgoing.on('headers', (headers) => {
    if (!stream.headersSent && !stream.destroyed) stream.additionalHeaders(forwarded(headers));
  });
  outgoing.on('response', (headers, flags) => {
    if (stream.destroyed) return;
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0;
    relayTrailers(outgoing, stream);
    stream.respond(forwarded(headers), { endStream, waitForTrailers: !endStream });
    outgoing.pipe(stream);
  });
  outgoing.on('error', () => {});
  stream.once('close', () => {
    if (!outgoing.closed) outgoing.close(stream.rstCode || NGHTTP2_CANCEL);
  });
  outgoing.once('close', () => {
    // Its last bytes may still be on their way to the client.
    if (outgoing.rstCode === NGHTTP2_NO_ERROR && stream.headersSent && outgoing.readableEnded) return;
    if (!stream.closed) stream.close(outgoing.rstCode || NGHTTP2_CANCEL);
  });
}

function relayTrailers(
  from: ClientHttp2Stream | ServerHttp2Stream,
  to: ClientHttp2Stream | ServerHttp2Stream,
): void {
  let trailers: OutgoingHttpHeaders = {};
  from.once('trailers', (headers) => (trailers = forwarded(headers)));
  // Without any, Node ends the stream.
  to.once('wantTrailers', () => to.sendTrailers(trailers));
}

/** The mark of fields that must not be indexed stays. */
function forwarded(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const copy: OutgoingHttpHeaders = { ...headers };
  for (const name of OF_CONNECTION) delete copy[name];
  return copy;
}

function answer(stream: ServerHttp2Stream, refusal: Refusal): void {
  const text = refusalText(refusal);
  const [type, length] = [refusalHeaders(text)[1], refusalHeaders(text)[3]];
  stream.respond({ ':status': refusal.status, 'content-type': type, 'content-length': length });
  stream.end(text);
}
