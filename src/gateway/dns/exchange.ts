import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import type { EventEmitter } from 'node:events';
import { connect, isIPv6 } from 'node:net';
import { isAnswerTo, isTruncated } from './question.js';

export interface ServerAddress {
  /** IPv4 or IPv6, also with a zone. */
  address: string;
  port: number;
}

/** A packet was lost, if there is no answer by then. */
const RESEND_MS = 1_000;
const LONGEST_TCP = 65_535;

/**
 * Asks one name server by UDP, and by TCP when the answer does not fit. Rejects if the server cannot be reached, or if
 * the signal aborts. The id and the port of the kernel are random, and a connected socket takes packets of the server
 * alone. The result has the id of the query.
 */
export async function exchange(query: Buffer, server: ServerAddress, signal: AbortSignal): Promise<Buffer> {
  const sent = Buffer.from(query);
  sent.writeUInt16BE(randomInt(65_536), 0);
  let answer = await exchangeByUdp(sent, server, signal);
  if (isTruncated(answer)) answer = await exchangeByTcp(sent, server, signal);
  query.copy(answer, 0, 0, 2);
  return answer;
}

function exchangeByUdp(
  query: Buffer,
  { address, port }: ServerAddress,
  signal: AbortSignal,
): Promise<Buffer> {
  const socket = createSocket({ type: isIPv6(address) ? 'udp6' : 'udp4' });
  let resend: NodeJS.Timeout | undefined;
  const close = () => {
    clearInterval(resend);
    socket.close();
  };
  return settleOnce({ socket, close, signal }, (done, fail) => {
    socket.on('message', (message) => {
      // A copy: the bytes may be kept, and those of the socket belong to a larger buffer.
      if (isAnswerTo(query, message)) done(Buffer.from(message));
    });
    socket.on('connect', () => {
      const send = () => socket.send(query, (error) => error && fail(error));
      send();
      resend = setInterval(send, RESEND_MS);
    });
    socket.connect(port, address);
  });
}

function exchangeByTcp(
  query: Buffer,
  { address, port }: ServerAddress,
  signal: AbortSignal,
): Promise<Buffer> {
  const socket = connect({ host: address, port });
  const length = Buffer.alloc(2);
  length.writeUInt16BE(query.length);
  socket.write(Buffer.concat([length, query]));
  return settleOnce({ socket, close: () => socket.destroy(), signal }, (done, fail) => {
    socket.on('close', () => fail(new Error('the name server closed the connection')));
    let [chunks, held]: [Buffer[], number] = [[], 0];
    socket.on('data', (chunk: Buffer) => {
      held += chunk.length;
      chunks.push(chunk);
      if (held > LONGEST_TCP + 2) return fail(new Error('the answer of the name server is too long'));
      const bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks);
      chunks = [bytes];
      const size = held < 2 ? Infinity : bytes.readUInt16BE(0);
      if (held < 2 + size) return;
      const answer = Buffer.from(bytes.subarray(2, 2 + size));
      if (isAnswerTo(query, answer)) done(answer);
      else fail(new Error('the name server answered another question'));
    });
  });
}

type Ask = (done: (answer: Buffer) => void, fail: (error: Error) => void) => void;

/** Settles with the first end that `ask` reports, an error of the socket, or the signal. Then the socket is closed. */
function settleOnce(
  { socket, close, signal }: { socket: EventEmitter; close: () => void; signal: AbortSignal },
  ask: Ask,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = () => {
      if (isOver) return;
      isOver = true;
      signal.removeEventListener('abort', abort);
      socket.removeAllListeners().on('error', () => {});
      close();
    };
    const fail = (error: Error) => {
      end();
      reject(error);
    };
    const abort = () => fail(signal.reason as Error);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    socket.on('error', fail);
    ask((answer) => {
      end();
      resolve(answer);
    }, fail);
  });
}
