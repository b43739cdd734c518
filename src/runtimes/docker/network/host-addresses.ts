import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Where a stub on the machine's own loopback, which nobody else reaches, keeps the resolvers that it asks itself. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];

/** The addresses of this machine that others may reach it by, at this moment. */
export function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => withoutZone(address));
}

/** Whom the engine asks when the machine names nobody that others reach. */
const FALLBACK_RESOLVERS = ['8.8.8.8', '8.8.4.4'];

/** The resolvers of this machine that are not on its loopback, or public ones. */
export function systemResolvers(): string[] {
  for (const path of RESOLV_CONFS) {
    const found = resolversIn(path);
    if (found.length > 0) return found;
  }
  return FALLBACK_RESOLVERS;
}

function resolversIn(path: string): string[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return [];
  }
  return [...text.matchAll(/^[ \t]*nameserver[ \t]+(\S+)/gm)]
    .map(([, address]) => withoutZone(address!))
    .filter((address) => isIP(address) !== 0 && !address.startsWith('127.') && address !== '::1');
}

function withoutZone(address: string): string {
  return address.split('%')[0]!;
}
