import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { duplexPair, type Duplex } from 'node:stream';
import { notePeer } from './client-address.js';

const inner = new WeakSet<Duplex>();

/**
 * A connection of this process to its own server, in memory. Its requests pass every hook, limit and count of the
 * server, as those of the client with this address. `address`: as `clientAddressOf` returns it.
 */
export function openInnerConnection(server: Server, address: string): Duplex {
  const [near, far] = duplexPair();
  inner.add(far);
  notePeer(far as Socket, address);
  // Neither side of such a pair sees that the other one was destroyed.
  near.once('close', () => far.destroy());
  far.once('close', () => near.destroy());
  for (const side of [near, far]) side.on('error', () => side.destroy());
  server.emit('connection', far);
  return near;
}

/** Whether the connection is in memory, where nobody could read it: it has no TLS. */
export function isInner(socket: Duplex): boolean {
  return inner.has(socket);
}
