import type { ClientRequest, IncomingMessage, InformationEvent, ServerResponse } from 'node:http';
import { guarded } from './guarded.js';
import { through } from './through.js';
import { forwardedFields, pairsOf, valuesOf, withoutFields } from './http1-headers.js';
import { hasBody } from './http1-request.js';
import { refusalHeaders, refusalText, type Refusal } from './refusal.js';
import type { RequestSecrets } from './request-secrets.js';

/** A client mostly reads its answer after it has sent its body. So much is read of one that is refused. */
const MOST_DRAINED = 64 * 1024 ** 2;
const DRAIN_MS = 30_000;
const LENGTH = new Set(['content-length']);
const LENGTH_AND_CODING = new Set(['content-length', 'content-encoding']);

/** A request and its answer. */
export interface Exchange {
  /** The server has it. */
  name: string;
  request: IncomingMessage;
  response: ServerResponse;
  secrets: RequestSecrets | undefined;
  /** The client gets an answer of the gateway in place of that of the server. */
  isReplaced?: boolean;
}

export function relayAnswer(exchange: Exchange, outgoing: ClientRequest): void {
  const { request, response } = exchange;
  const fail = () => void request.socket.destroy();
  const inform = ({ statusCode, rawHeaders }: InformationEvent) => {
    if (response.headersSent) return;
    if (statusCode === 100) response.writeContinue();
    if (statusCode === 102) response.writeProcessing();
    if (statusCode === 103) writeEarlyHints(exchange, rawHeaders);
  };
  const relayResponse = (answered: IncomingMessage) => {
    if (!outgoing.shouldKeepAlive) response.shouldKeepAlive = false;
    // A client must not take a part for the whole.
    answered.on('error', () => exchange.isReplaced || request.socket.destroy());
    answered.on('close', () => {
      if (!answered.complete && !exchange.isReplaced) request.socket.destroy();
    });
    if (!response.headersSent) relayParts(exchange, answered);
  };
  outgoing.on('information', guarded(inform, fail));
  outgoing.on('response', guarded(relayResponse, fail));
  outgoing.on('error', (error: NodeJS.ErrnoException) => {
    // A server may answer and close before it has read the whole body.
    if (response.headersSent) return;
    if (error.code?.startsWith('HPE_')) return answer(response, request, unreadable(exchange.name));
    request.socket.destroy();
  });
  response.once('close', () => {
    if (!response.writableFinished) outgoing.destroy();
  });
}

function relayParts(exchange: Exchange, answered: IncomingMessage): void {
  const { name, request, response, secrets } = exchange;
  const { headers, rawHeaders, statusMessage = '' } = answered;
  const read = hasNoBody(request, answered)
    ? undefined
    : secrets?.answerBody(answered.statusCode!, headers['content-type'], headers['content-encoding']);
  if (read && 'code' in read) return refuseAnswer(exchange, answered, read);
  const fields = withoutEchoes(forwardedFields(rawHeaders), secrets);
  const sent = read ? withoutFields(fields, read.isDecoded ? LENGTH_AND_CODING : LENGTH) : fields;
  try {
    response.writeHead(answered.statusCode!, secrets?.echo(statusMessage) ?? statusMessage, sent.flat());
  } catch {
    return refuseAnswer(exchange, answered, unreadable(name));
  }
  // Event streams send their head long before their first event. Short answers leave in one piece with their head.
  const flush = setImmediate(() => response.flushHeaders());
  // An answer that cannot be looked through ends here.
  const body = read ? through(answered, read.steps, () => response.destroy()) : answered;
  body.pipe(response, { end: false });
  const end = () => {
    clearImmediate(flush);
    const trailers = withoutEchoes(pairsOf(answered.rawTrailers), secrets);
    if (trailers.length > 0) response.addTrailers(trailers);
    response.end();
  };
  body.on(
    'end',
    guarded(end, () => void request.socket.destroy()),
  );
}

function hasNoBody({ method }: IncomingMessage, { statusCode = 0, headers }: IncomingMessage): boolean {
  return (
    method === 'HEAD' || statusCode === 204 || statusCode === 304 || Number(headers['content-length']) === 0
  );
}

/** The rest of it is not read, so its connection ends. */
function refuseAnswer(exchange: Exchange, answered: IncomingMessage, refusal: Refusal): void {
  const { request, response } = exchange;
  exchange.isReplaced = true;
  answered.destroy();
  response.shouldKeepAlive = false;
  answer(response, request, refusal);
}

function withoutEchoes(fields: [string, string][], secrets: RequestSecrets | undefined): [string, string][] {
  return secrets ? fields.map(([name, value]) => [name, secrets.echo(value)]) : fields;
}

function writeEarlyHints({ response, secrets }: Exchange, rawHeaders: readonly string[]): void {
  const link = valuesOf(rawHeaders, 'link').map((value) => secrets?.echo(value) ?? value);
  if (link.length === 0) return;
  try {
    response.writeEarlyHints({ link });
  } catch {
    // Node does not send every hint. Clients do without.
  }
}

function unreadable(name: string): Refusal {
  return {
    status: 502,
    code: 'upstream_failed',
    message: `${name} sent an answer that is not valid HTTP/1.1`,
    domain: name,
  };
}

export function tooManyBodies(domain: string): Refusal {
  return {
    status: 503,
    code: 'gateway_busy',
    message: 'too many large bodies wait for their secrets: send fewer at a time',
    domain,
  };
}

/** A value may have characters that no header or path can have. */
export function unsendable(domain: string): Refusal {
  return {
    status: 400,
    code: 'invalid_request',
    message: 'the path or a field of the request has a character that HTTP/1.1 does not allow',
    domain,
  };
}

/** An answer of the gateway itself. */
export function answer(response: ServerResponse, request: IncomingMessage, refusal: Refusal): void {
  if (response.headersSent) return void response.destroy();
  const text = refusalText(refusal);
  const mustDrain = hasBody(request) && !request.complete;
  if (mustDrain) response.shouldKeepAlive = false;
  response.writeHead(refusal.status, refusalHeaders(text));
  if (!mustDrain) return void response.end(text);
  response.write(text);
  drain(request, () => response.end());
}

function drain(request: IncomingMessage, end: () => void): void {
  let length = 0;
  const timer = setTimeout(() => request.destroy(), DRAIN_MS);
  request.on('data', (part: Buffer) => {
    length += part.length;
    if (length > MOST_DRAINED) request.destroy();
  });
  request.once('end', end).once('close', () => clearTimeout(timer));
  request.resume();
}

/** For a connection that no parser has any more. */
export function rawAnswer(refusal: Refusal): string {
  const text = refusalText(refusal);
  const fields = pairsOf(refusalHeaders(text)).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${refusal.status} \r\n${fields.join('')}connection: close\r\n\r\n${text}`;
}
