import { readFileSync } from 'node:fs';
import { isIP, isIPv4 } from 'node:net';

/** The second file has the upstream resolvers of a local stub, such as 127.0.0.53, which sandboxes cannot reach. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];
/** Those of the engine, for the same case. */
const FALLBACK = ['8.8.8.8', '8.8.4.4'];

export interface Resolvers {
  addresses: readonly string[];
  /** The resolvers of the machine that no sandbox can ask. */
  unusable: readonly string[];
  /** The machine has no usable one. */
  isFallback: boolean;
}

/** Reads the files at each call: a new start has the resolvers that the machine has then. */
export function systemResolvers(read: (path: string) => string = readIfPresent): Resolvers {
  const unusable: string[] = [];
  for (const path of RESOLV_CONFS) {
    const found = nameserversIn(read(path));
    // Filtered before the next file is considered: a file of IPv6 resolvers alone has none for a sandbox.
    const addresses = found.filter(isUsable);
    unusable.push(...found.filter((address) => !isUsable(address)));
    if (addresses.length > 0) return { addresses, unusable, isFallback: false };
  }
  return { addresses: FALLBACK, unusable, isFallback: true };
}

/** A sandbox has no IPv6, and would wait for such a resolver. Its own loopback has none. */
export function isUsable(address: string): boolean {
  return isIPv4(address) && !address.startsWith('127.') && address !== '0.0.0.0';
}

function nameserversIn(text: string): string[] {
  return [...text.matchAll(/^[ \t]*nameserver[ \t]+(\S+)/gm)]
    .map(([, address]) => address!)
    .filter((address) => isIP(address.split('%')[0]!) !== 0);
}

function readIfPresent(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
