import type { Socket } from 'node:net';
import { carrierOf } from './client-address.js';

/**
 * Ends a connection so that its client sees a failure: with HTTP/1.0 an orderly close would make the answer look
 * complete. Only TCP has a reset, and Node throws for other sockets: below TLS the carrier is reset, and a Unix socket
 * is closed.
 */
export function resetConnection(socket: Socket): void {
  try {
    carrierOf(socket).resetAndDestroy();
  } catch {
    // A Unix socket.
  }
  socket.destroy();
}
