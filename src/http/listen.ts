import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { createServer, type AddressInfo, type ListenOptions, type Server } from 'node:net';
import { notePeer, UNIX_PEER } from './client-address.js';
import type { App } from './route.js';
import { UnixSocket } from './unix-socket.js';

/** In place of a host: the service listens on the Unix socket only. */
export const NO_HOST = 'none';
/** Connections that the kernel holds until they are accepted. Beyond them, a client tries again after a second. */
export const BACKLOG = 4_096;

export interface Place {
  host: string;
  port: number;
  /** A path for a Unix socket, and its mode. */
  unix?: { path: string; mode: number } | undefined;
  isTls?: boolean;
}

const others = new WeakMap<App, Server[]>();
const sockets = new WeakMap<App, UnixSocket>();

/** Listens, and returns the address as a URL, or the path of the socket after `unix:`. Port 0 takes a free one. */
export async function listen(app: App, { host, port, unix, isTls = false }: Place): Promise<string> {
  const socket = unix && (await UnixSocket.claim(unix.path, unix.mode));
  if (socket && host === NO_HOST) {
    app.server.prependListener('connection', (client) => notePeer(client, UNIX_PEER));
    await app.listen({ path: socket.ownPath, backlog: BACKLOG });
    publish(app, socket);
    return `unix:${socket.path}`;
  }
  // Fastify would make another server for the second address, without limits and TLS.
  const [first, ...more] = host === 'localhost' ? await addressesOf(host) : [host];
  await app.listen({ host: first!, port, backlog: BACKLOG });
  const { port: taken } = app.server.address() as AddressInfo;
  for (const address of more) await listenToo(app, { host: address, port: taken }).catch(unlessMissing);
  if (socket) {
    await listenToo(app, { path: socket.ownPath }, UNIX_PEER);
    publish(app, socket);
  }
  return urlOf(app.server, isTls ? 'https' : 'http');
}

/** Ends the listeners beside that of the app. Resolves when their last connection has closed. */
export async function closeOthers(app: App): Promise<void> {
  sockets.get(app)?.remove();
  await Promise.all((others.get(app) ?? []).map((server) => new Promise((done) => server.close(done))));
}

async function addressesOf(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true });
  return found.toSorted((a, b) => a.family - b.family).map(({ address }) => address);
}

async function listenToo(app: App, place: ListenOptions, peer?: string): Promise<void> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (peer !== undefined) notePeer(client, peer);
    app.server.emit('connection', client);
  });
  server.maxConnections = app.server.maxConnections;
  await once(server.listen({ ...place, backlog: BACKLOG }), 'listening');
  others.set(app, [...(others.get(app) ?? []), server]);
}

/** The file of names may have IPv6 where the kernel has none. */
function unlessMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EADDRNOTAVAIL' && error.code !== 'EAFNOSUPPORT') throw error;
}

function publish(app: App, socket: UnixSocket): void {
  socket.publish();
  sockets.set(app, socket);
}

export function urlOf(server: Server, scheme = 'http'): string {
  const address = server.address() as AddressInfo;
  return `${scheme}://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
}

/** The address at which processes of the same machine reach what listens at `address`. Null: none. */
export function reachableAt(address: string): string | null {
  if (address.startsWith('unix:')) return null;
  return address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
}
