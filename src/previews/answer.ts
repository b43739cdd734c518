import { ServerResponse, STATUS_CODES, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ApiError } from '../http/errors.js';
import { afterLastWord } from '../http/last-word.js';
import { whenOver } from '../http/when-over.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { PreviewRequest, PreviewResponse } from './types.js';

/** The time that a client has to read an answer of this service. A window of HTTP/2 may stay closed. */
const OWN_ANSWER_MS = 30_000;
const HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-robots-tag': 'noindex',
} as const;

/** Answers with the error, in the form of the API, unless an answer has begun: then the connection ends. */
export function answerError(request: PreviewRequest, response: PreviewResponse, error: ApiError): void {
  if (response.headersSent) {
    breakOff(response);
    return;
  }
  const body = request.method === 'HEAD' ? '' : stringifyExact(error.body);
  const isHttp2 = request.httpVersionMajor === 2;
  // Node has no flat list of headers for HTTP/2, which has no connection headers.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  for (const [name, value] of Object.entries({ ...HEADERS, ...error.headers })) {
    if (!isHttp2 || name !== 'connection') response.setHeader(name, value);
  }
  response.statusCode = error.status;
  response.end(body);
  boundAnswer(request, response);
}

/** Bounds an answer of this service, whose client needs no grant: a client that does not read it holds its memory. */
export function boundAnswer(request: PreviewRequest, response: PreviewResponse): void {
  const cut = setTimeout(() => breakOff(response), OWN_ANSWER_MS).unref();
  response.once('close', () => clearTimeout(cut));
  endUnread(request, response);
}

/** A client of an unfinished body may read the answer before its connection ends. */
function endUnread(request: PreviewRequest, response: PreviewResponse): void {
  if (request.complete) return;
  request.on('error', () => undefined);
  request.resume();
  const cancel = afterLastWord(request.socket, () => breakOff(response));
  for (const event of ['end', 'close']) request.once(event, cancel);
}

/** Calls `over` once, when the answer is complete or its client has left. */
export function onceOver(request: PreviewRequest, response: PreviewResponse, over: () => void): void {
  if (response instanceof ServerResponse) {
    whenOver({ raw: response, request: { raw: request as IncomingMessage } }, over);
  } else response.once('close', over);
}

/** Ends an answer so that its client sees a failure. */
export function breakOff(response: PreviewResponse): void {
  if (response instanceof ServerResponse) response.socket?.destroy();
  else response.stream.destroy(new Error('the answer of the sandbox broke off'));
}

/** For a connection that has no request: its HTTP is broken, or there is no room for it. */
export function answerRaw(socket: Duplex, error: ApiError): void {
  const body = stringifyExact(error.body);
  const headers = { ...HEADERS, 'content-length': Buffer.byteLength(body), ...error.headers };
  socket.end(
    [
      `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      'connection: close',
      '',
      body,
    ].join('\r\n'),
  );
  // The client may keep its side open.
  afterLastWord(socket, () => socket.destroy());
}

/** The answer to a request for an upgrade that gets none. Undefined: an earlier answer still holds the connection. */
export function responseOn(request: IncomingMessage, socket: Socket): ServerResponse | undefined {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  try {
    response.assignSocket(socket);
  } catch {
    return undefined;
  }
  response.on('finish', () => {
    response.detachSocket(socket);
    // Unread bytes would reset the connection before the client has the answer.
    socket.resume().end();
    afterLastWord(socket, () => socket.destroy());
  });
  return response;
}
