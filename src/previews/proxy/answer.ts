import { ServerResponse, type IncomingMessage } from 'node:http';
import { ApiError } from '../../http/errors.js';
import { answerHeaders, asHttp2, trailersOf } from '../headers.js';
import { copy } from './copy.js';
import { STALL_MS, type Exchange } from './exchange.js';

interface Relay extends Pick<Exchange, 'response' | 'target' | 'moved'> {
  /** The client reads nothing, or the answer ends before its end. */
  broken(this: void): void;
  ended(this: void): void;
}

/** Sends the answer of a server to the client. Throws an ApiError for a head that cannot be sent. */
export function relayAnswer(answer: IncomingMessage, relay: Relay): void {
  const { response, broken, ended } = relay;
  answer.on('error', broken);
  writeHead(answer, relay);
  const end = copy(answer, response, {
    moved: (bytes) => relay.moved('out', bytes),
    stalled: broken,
    stallMs: STALL_MS,
  });
  answer.once('end', () => {
    end();
    // Node ends a message that broke off, too.
    if (!answer.complete) return broken();
    const trailers = trailersOf(answer.rawTrailers);
    if (trailers.length > 0 && !(response instanceof ServerResponse)) {
      response.addTrailers(asHttp2(trailers.flat()));
    } else if (trailers.length > 0) (response as ServerResponse).addTrailers(trailers);
    response.end();
    ended();
  });
  // An event stream has a head long before its first byte. A short answer is sent in one packet.
  setImmediate(() => {
    if (response instanceof ServerResponse && !response.writableEnded) response.flushHeaders();
  });
}

function writeHead(answer: IncomingMessage, { response, target }: Relay): void {
  const coding = answer.headers['transfer-encoding'];
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new ApiError(
      'no_answer_of_sandbox',
      `the server answered in the coding "${coding}": use "chunked"`,
    );
  }
  if (answer.httpVersionMajor !== 1) {
    throw new ApiError(
      'no_answer_of_sandbox',
      `the server answered in HTTP/${answer.httpVersion}: use HTTP/1.1`,
    );
  }
  // An upgrade has an event of its own. This one is to no protocol, or was not asked for.
  if (answer.statusCode! < 200) throw new ApiError('no_answer_of_sandbox');
  const head = answerHeaders(answer.rawHeaders, answer.headers, target);
  try {
    if (response instanceof ServerResponse)
      response.writeHead(answer.statusCode!, answer.statusMessage, head);
    else response.writeHead(answer.statusCode!, asHttp2(head));
  } catch (cause) {
    throw new ApiError('no_answer_of_sandbox', undefined, null, { cause });
  }
}
