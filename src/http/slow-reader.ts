import type { FastifyReply, FastifyRequest } from 'fastify';
import { resetConnection } from './reset-connection.js';
import { whenOver } from './when-over.js';

const LOOK_EVERY_MS = 250;

/** The client of a long answer, observed by the bytes that the operating system accepts for it. */
export interface Reader {
  /** Aborts when either side closes the connection. */
  gone: AbortSignal;
  /** How long the client has accepted nothing although data waited, in milliseconds. */
  idleMs(): number;
  cutOff(): void;
}

/** Cuts off a client that accepts nothing for `stallMs`, or has not read everything after `limitMs`. */
export function watchReader(
  request: FastifyRequest,
  reply: FastifyReply,
  { stallMs, limitMs }: { stallMs: number; limitMs: number },
): Reader {
  const { socket } = request.raw;
  const { raw } = reply;
  const gone = new AbortController();
  const begun = performance.now();
  let taken = 0;
  let takenAt = begun;

  function idleMs(): number {
    const now = performance.now();
    const left = socket.bytesWritten - socket.writableLength;
    if (left !== taken || raw.writableLength === 0) {
      taken = left;
      takenAt = now;
    }
    return now - takenAt;
  }

  function cutOff(): void {
    resetConnection(socket);
    gone.abort();
  }

  const watch = setInterval(() => {
    if (idleMs() >= stallMs || performance.now() - begun >= limitMs) {
      request.log.info({ idleMs: Math.round(idleMs()) }, 'a slow reader was cut off');
      cutOff();
    }
  }, LOOK_EVERY_MS);
  whenOver(reply, () => {
    clearInterval(watch);
    gone.abort();
  });

  return { gone: gone.signal, idleMs, cutOff };
}
