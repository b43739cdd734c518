import type { FastifyReply, FastifyRequest } from 'fastify';

const LOOK_EVERY_MS = 250;

/** Who a long answer goes to, as far as can be seen from this side: by what the operating system takes off our hands for it. */
export interface Reader {
  /** Aborts when the connection is closed, by whichever side. */
  gone: AbortSignal;
  /** For how long it has taken nothing of what is there for it, in milliseconds. */
  idleMs(): number;
  /**
   * Resets the connection. Without chunks (HTTP/1.0) the orderly end of a connection is the end of the answer, and one that breaks
   * off would be taken for complete.
   */
  cutOff(): void;
}

/**
 * Watches the reader of an answer until it is over. One that takes nothing for `stallMs` milliseconds, or has not got to the end after
 * `limitMs`, is cut off.
 */
export function watchReader(
  request: FastifyRequest,
  { raw }: FastifyReply,
  { stallMs, limitMs }: { stallMs: number; limitMs: number },
): Reader {
  const { socket } = request.raw;
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
    socket.resetAndDestroy();
    gone.abort();
  }

  const watch = setInterval(() => {
    if (idleMs() >= stallMs || performance.now() - begun >= limitMs) {
      request.log.info({ idleMs: Math.round(idleMs()) }, 'a slow reader was cut off');
      cutOff();
    }
  }, LOOK_EVERY_MS);
  const over = () => {
    clearInterval(watch);
    gone.abort();
  };
  raw.once('close', over);
  if (raw.destroyed || socket.destroyed) over();

  return { gone: gone.signal, idleMs, cutOff };
}
