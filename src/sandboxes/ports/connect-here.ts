import type { Socket } from 'node:net';
import type { WorkerContext } from '../../context.js';
import { ConnectError } from '../../engine/connect-error.js';
import type { PortPlace } from '../../engine/runtime.js';
import { errnoOf } from '../../guest/errno.js';
import { PortRefusedError } from './guest-stream.js';

const REFUSED = errnoOf('ECONNREFUSED');

/**
 * A connection to a port of a sandbox without its agent. Undefined: its engine has no such way. Throws
 * PortRefusedError, or an error with the words of the sandbox's kernel. `signal` ends the attempt, and later the
 * connection.
 */
export async function connectHere(
  { runtime }: Pick<WorkerContext, 'runtime'>,
  place: PortPlace,
  signal: AbortSignal,
): Promise<Socket | undefined> {
  try {
    const socket = await runtime.connectPort?.(place, signal);
    if (socket) endWith(socket, signal);
    return socket;
  } catch (error) {
    if (error instanceof ConnectError && error.errno === REFUSED) throw new PortRefusedError(place.port);
    throw error;
  }
}

function endWith(socket: Socket, signal: AbortSignal): void {
  const stop = () => socket.destroy(signal.reason instanceof Error ? signal.reason : new Error('cut off'));
  signal.addEventListener('abort', stop, { once: true });
  socket.once('close', () => signal.removeEventListener('abort', stop));
  if (signal.aborted) stop();
}
