import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Linked, LinkedList } from '../lib/linked-list.js';

class Waiting extends Linked {
  constructor(readonly over: () => void) {
    super();
  }
}

const ofSockets = new WeakMap<Socket, LinkedList<Waiting>>();

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
  const waiting = new Waiting(over);
  known.add(waiting);
  // It is emitted once, so this needs no `once`, which costs more.
  raw.on('close', () => {
    if (known.delete(waiting)) over();
  });
}

function listenTo(socket: Socket): LinkedList<Waiting> {
  const all = new LinkedList<Waiting>();
  ofSockets.set(socket, all);
  socket.once('close', () => {
    // Each may end others.
    for (let first = all.first; first; first = all.first) {
      all.delete(first);
      first.over();
    }
  });
  return all;
}
