import type { FastifyReply, FastifyRequest } from 'fastify';
import type { SlotHolder } from '../fairness/reclaimed-slots.js';
import { ApiError } from './errors.js';
import { resetConnection } from './reset-connection.js';
import { whenOver } from './when-over.js';

/** A client of a download or an upload. */
interface WatchedClient extends SlotHolder {
  /** Aborts when nobody needs the result. */
  abandoned: AbortSignal;
}

export function watchClient(
  request: FastifyRequest,
  reply: FastifyReply,
  stopping: AbortSignal,
): WatchedClient {
  const { socket } = request.raw;
  const { raw } = reply;
  const gone = new AbortController();
  const abandoned = new AbortController();
  let moved = -1;
  let movedAt = 0;

  const onStop = () => abandoned.abort(new ApiError('not_ready', 'the service stops: send it again'));
  const onClose = () => {
    stopping.removeEventListener('abort', onStop);
    if (!raw.writableFinished) abandoned.abort(new ApiError('request_timeout', 'the client has left'));
    gone.abort();
  };
  stopping.addEventListener('abort', onStop);
  whenOver(reply, onClose);

  return {
    gone: gone.signal,
    abandoned: abandoned.signal,
    idleMs() {
      const bytes = socket.bytesRead + socket.bytesWritten - socket.writableLength;
      const expectsBody = !request.raw.complete && request.raw.readableLength === 0;
      if (bytes !== moved || (raw.writableLength === 0 && !expectsBody)) {
        moved = bytes;
        movedAt = performance.now();
      }
      return performance.now() - movedAt;
    },
    cutOff: () => resetConnection(socket),
  };
}
