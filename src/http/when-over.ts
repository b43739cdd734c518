import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const ofSockets = new WeakMap<Socket, Set<() => void>>();

/** Such as a reply of Fastify. */
interface Answering {
  raw: ServerResponse;
  request: { raw: IncomingMessage };
}

/**
 * Calls `over` once, when the answer is complete or its connection is closed, or at once if it already is. An answer
 * that waits for another one of its connection has no event of its own when the client leaves.
 */
export function whenOver({ raw, request }: Answering, over: () => void): void {
  const { socket } = request.raw;
  if (raw.closed || socket.destroyed) {
    over();
    return;
  }
  const known = ofSockets.get(socket) ?? listenTo(socket);
  const once = () => {
    if (known.delete(once)) over();
  };
  known.add(once);
  raw.once('close', once);
}

function listenTo(socket: Socket): Set<() => void> {
  const all = new Set<() => void>();
  ofSockets.set(socket, all);
  socket.once('close', () => {
    for (const once of all) once();
  });
  return all;
}
