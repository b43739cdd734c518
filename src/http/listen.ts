import type { AddressInfo, Server } from 'node:net';
import type { App } from './route.js';

/** Listens, and returns the address as a URL. Port 0 takes a free one. */
export async function listen(app: App, { host, port }: { host: string; port: number }): Promise<string> {
  await app.listen({ host, port });
  return urlOf(app.server);
}

export function urlOf(server: Server): string {
  const address = server.address() as AddressInfo;
  return `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
}

/** The address at which processes of the same machine reach what listens at `address`. */
export function reachableAt(address: string): string {
  return address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
}
