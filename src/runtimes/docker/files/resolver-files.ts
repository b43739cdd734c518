/**
 * The service mounts these files read-only over the engine's own. A guest could write to those, beyond its disk limit,
 * and they name the engine's resolver, which reveals other containers on the bridge.
 */

export interface ResolverConfig {
  hostname: string;
  /** The sandbox's own addresses; empty without a network. */
  addresses: readonly string[];
  resolvers: readonly string[];
}

export const RESOLVER_FILES = ['/etc/hostname', '/etc/hosts', '/etc/resolv.conf'] as const;
export type ResolverFile = (typeof RESOLVER_FILES)[number];

/** The same entries as the engine's. */
const LOOPBACK_NAMES = [
  '127.0.0.1\tlocalhost',
  '::1\tlocalhost ip6-localhost ip6-loopback',
  'fe00::0\tip6-localnet',
  'ff00::0\tip6-mcastprefix',
  'ff02::1\tip6-allnodes',
  'ff02::2\tip6-allrouters',
];

export function resolverFileContent(
  file: ResolverFile,
  { hostname, addresses, resolvers }: ResolverConfig,
): string {
  switch (file) {
    case '/etc/hostname':
      return `${hostname}\n`;
    case '/etc/hosts':
      return lines([
        ...LOOPBACK_NAMES,
        ...addresses.map((address) => `${address}\t${withShortName(hostname)}`),
      ]);
    case '/etc/resolv.conf':
      return lines(resolvers.map((address) => `nameserver ${address}`));
  }
}

/** The short name of a host name with a domain resolves too. */
function withShortName(hostname: string): string {
  const [short] = hostname.split('.');
  return short === hostname ? hostname : `${hostname} ${short}`;
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join('');
}
