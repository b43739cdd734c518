import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** The second file has the upstream resolvers of a local stub, which sandboxes cannot reach. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];

export function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => withoutZone(address));
}

const FALLBACK_RESOLVERS = ['8.8.8.8', '8.8.4.4'];

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
