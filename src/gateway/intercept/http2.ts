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
import { guarded } from './guarded.js';
import {
  authorityOf,
  forwarded,
  isRefusal,
  withoutEchoes,
  withValues,
  withValuesOfTrailers,
} from './http2-headers.js';
import { pauseFor } from './pause.js';
import { refusalHeaders, refusalText, type Refusal } from './refusal.js';
import { hostOf, refuseHost } from './request-host.js';
import { RequestSecrets } from './request-secrets.js';
import { REQUEST_MS } from './shared-work.js';
import { through } from './through.js';

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
const {
  NGHTTP2_CANCEL,
  NGHTTP2_FLAG_END_STREAM,
  NGHTTP2_NO_ERROR,
  NGHTTP2_PROTOCOL_ERROR,
  NGHTTP2_REFUSED_STREAM,
} = constants;

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
  const forward = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number) => {
    stream.on('error', () => {});
    const refusal = refuse(headers, { connection });
    if (refusal) {
      if (refusal.code === 'network_policy_denied') connection.deny(refusal);
      return answer(stream, refusal);
    }
    const host = hostOf(authorityOf(headers)!)!;
    const secrets = RequestSecrets.for(connection, host, upstream.verified);
    const sent = withValues({ ...forwarded(headers), ':scheme': scheme }, secrets);
    if (isRefusal(sent)) return answer(stream, sent);
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0;
    // They may come while the request waits.
    const trailers = trailersOf(stream);
    const pass = () => {
      const outgoing = open(server, sent, endStream);
      if (outgoing) relay({ stream, outgoing, isWhole: endStream, secrets, trailers });
      else stream.close(NGHTTP2_REFUSED_STREAM);
    };
    const wait = connection.work.charge(connection.orgId, REQUEST_MS);
    if (!wait) return pass();
    void wait.then(() => stream.destroyed || pass()).catch(() => stream.close(NGHTTP2_REFUSED_STREAM));
  };
  client.on(
    'stream',
    guarded(forward, (stream) => stream.destroy()),
  );
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
  const authority = authorityOf(headers);
  const { host } = headers;
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

interface Exchange {
  stream: ServerHttp2Stream;
  outgoing: ClientHttp2Stream;
  /** It has no body. */
  isWhole: boolean;
  secrets: RequestSecrets | undefined;
  /** The fields after the body, once they have come. */
  trailers: Trailers;
}

function relay({ stream, outgoing, isWhole, secrets, trailers }: Exchange): void {
  if (!isWhole) sendTrailers(outgoing, () => withValuesOfTrailers(trailers.headers, secrets));
  if (secrets && !isWhole) scanBody(stream, outgoing, secrets);
  stream.pipe(outgoing);
  const fail = () => stream.close(NGHTTP2_PROTOCOL_ERROR);
  const inform = (headers: IncomingHttpHeaders) => {
    if (!stream.headersSent && !stream.destroyed)
      stream.additionalHeaders(withoutEchoes(forwarded(headers), secrets));
  };
  const respond = (headers: IncomingHttpHeaders, flags: number) => {
    if (stream.destroyed || stream.headersSent) return;
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0;
    const hasBody = !endStream && Number(headers['content-length']) !== 0;
    const [type, coding] = [headers['content-type'], headers['content-encoding']];
    const read = hasBody ? secrets?.answerBody(Number(headers[':status']), type, coding) : undefined;
    if (read && 'code' in read) return replaceAnswer(stream, outgoing, read);
    const last = trailersOf(outgoing);
    sendTrailers(stream, () => withoutEchoes(last.headers, secrets));
    const answered = withoutEchoes(forwarded(headers), secrets);
    if (read) delete answered['content-length'];
    if (read?.isDecoded) delete answered['content-encoding'];
    stream.respond(answered, { endStream, waitForTrailers: !endStream });
    // An answer that cannot be looked through ends here.
    const end = () => stream.close(NGHTTP2_CANCEL);
    (read ? through(outgoing, read.steps, end) : outgoing).pipe(stream);
  };
  outgoing.on('headers', guarded(inform, fail));
  outgoing.on('response', guarded(respond, fail));
  outgoing.on('error', () => {});
  stream.once('close', () => {
    if (!outgoing.closed) outgoing.close(stream.rstCode || NGHTTP2_CANCEL);
  });
  outgoing.once('close', () => {
    // Its last bytes may still be on their way to the client.
    if (outgoing.rstCode === NGHTTP2_NO_ERROR && stream.headersSent && outgoing.readableEnded) return;
    if (!stream.closed && !isAnswered.has(stream)) stream.close(outgoing.rstCode || NGHTTP2_CANCEL);
  });
}

/** Streams that the gateway has answered itself, while their request was under way. */
const isAnswered = new WeakSet<ServerHttp2Stream>();

function replaceAnswer(stream: ServerHttp2Stream, outgoing: ClientHttp2Stream, refusal: Refusal): void {
  answer(stream, refusal);
  cancel(stream, outgoing);
}

/** The rest of the request is read and dropped. */
function cancel(stream: ServerHttp2Stream, outgoing: ClientHttp2Stream): void {
  isAnswered.add(stream);
  stream.unpipe(outgoing);
  outgoing.close(NGHTTP2_CANCEL);
  outgoing.destroy();
  stream.resume();
}

/** Bodies of HTTP/2 are not rewritten, and none with a placeholder is sent to its end. */
function scanBody(stream: ServerHttp2Stream, outgoing: ClientHttp2Stream, secrets: RequestSecrets): void {
  const scan = secrets.scanner('h2');
  // Before the pipe: a piece with the end of a placeholder is not sent.
  const look = (piece: Buffer) => {
    const refusal = isAnswered.has(stream) ? undefined : scan(piece);
    if (!refusal) return pauseFor(stream, secrets.rest());
    if (!stream.headersSent) return replaceAnswer(stream, outgoing, refusal);
    stream.close(NGHTTP2_CANCEL);
    cancel(stream, outgoing);
  };
  stream.on(
    'data',
    guarded(look, () => stream.destroy()),
  );
}

type Stream = ClientHttp2Stream | ServerHttp2Stream;

interface Trailers {
  headers: OutgoingHttpHeaders;
}

function trailersOf(stream: Stream): Trailers {
  const trailers: Trailers = { headers: {} };
  stream.once('trailers', (headers) => (trailers.headers = forwarded(headers)));
  return trailers;
}

/** `trailers` gives nothing for those that must not be sent. */
function sendTrailers(stream: Stream, trailers: () => OutgoingHttpHeaders | undefined): void {
  const send = () => {
    const headers = trailers();
    // Without any, Node ends the stream.
    if (headers) stream.sendTrailers(headers);
    else stream.close(NGHTTP2_CANCEL);
  };
  stream.once(
    'wantTrailers',
    guarded(send, () => stream.close(NGHTTP2_PROTOCOL_ERROR)),
  );
}

function answer(stream: ServerHttp2Stream, refusal: Refusal): void {
  // A client may have closed it while its last bytes waited here.
  if (stream.closed || stream.destroyed) return void stream.destroy();
  const text = refusalText(refusal);
  const [type, length] = [refusalHeaders(text)[1], refusalHeaders(text)[3]];
  stream.respond({ ':status': refusal.status, 'content-type': type, 'content-length': length });
  stream.end(text);
}
