import type { ClientRequest } from 'node:http';
import { answer, type Exchange } from './http1-answer.js';
import { guarded } from './guarded.js';
import { pairsOf } from './http1-headers.js';
import { hasBody } from './http1-request.js';
import { pauseFor } from './pause.js';
import type { Refusal } from './refusal.js';

/** Sends the body as it comes. `first`: its bytes that were read before. */
export function relayBody(exchange: Exchange, outgoing: ClientRequest, first?: Buffer): void {
  const { request, response, secrets } = exchange;
  if (!hasBody(request)) return void outgoing.end();
  // A client that waits for "100 Continue" sends nothing before the server has seen the head.
  outgoing.flushHeaders();
  let isRefused = false;
  const refuse = (refusal: Refusal) => {
    if (isRefused) return;
    isRefused = true;
    request.unpipe(outgoing);
    answer(response, request, refusal);
    outgoing.destroy();
  };
  const scan = secrets?.scanner('http/1.1');
  const look = (piece: Buffer) => {
    const refusal = isRefused ? undefined : scan?.(piece);
    if (refusal) return refuse(refusal);
    pauseFor(request, secrets?.rest());
  };
  if (first) look(first);
  if (isRefused) return;
  // Before the pipe: a piece with the end of a placeholder is not sent.
  if (scan) request.on('data', look);
  if (first) outgoing.write(first);
  request.pipe(outgoing, { end: false });
  const end = () => {
    if (isRefused) return;
    const trailers = trailersOf(exchange);
    if ('code' in trailers) return refuse(trailers);
    if (trailers.length > 0) outgoing.addTrailers(trailers);
    outgoing.end();
  };
  request.on(
    'end',
    guarded(end, () => void outgoing.destroy()),
  );
  request.on('error', () => outgoing.destroy());
  request.on('aborted', () => outgoing.destroy());
}

function trailersOf({ request, secrets }: Exchange): [string, string][] | Refusal {
  const trailers = pairsOf(request.rawTrailers);
  if (!secrets || trailers.length === 0) return trailers;
  const head = secrets.trailers(trailers);
  return 'code' in head ? head : head.headers;
}
