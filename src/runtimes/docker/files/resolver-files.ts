/**
 * The files that say who a guest is and whom it asks for names. The engine's own lie on the machine's disk, outside any
 * limit, and a guest may write to them; and they name the engine's resolver, which tells what else is on the bridge. So
 * each sandbox has these over them, which it can only read.
 */

export interface Names {
  hostname: string;
  /** Of its own; none without a network. */
  addresses: readonly string[];
  /** Addresses that it can reach. */
  resolvers: readonly string[];
}

export const RESOLVER_FILES = ['/etc/hostname', '/etc/hosts', '/etc/resolv.conf'] as const;
export type ResolverFile = (typeof RESOLVER_FILES)[number];

/** The engine's own, so that images find what they know. */
const LOOPBACK_NAMES = [
  '127.0.0.1\tlocalhost',
  '::1\tlocalhost ip6-localhost ip6-loopback',
  'fe00::0\tip6-localnet',
  'ff00::0\tip6-mcastprefix',
  'ff02::1\tip6-allnodes',
  'ff02::2\tip6-allrouters',
];

export function resolverFileContent(file: ResolverFile, { hostname, addresses, resolvers }: Names): string {
  switch (file) {
    case '/etc/hostname':
      return `${hostname}\n`;
    case '/etc/hosts':
      return lines([...LOOPBACK_NAMES, ...addresses.map((address) => `${address}\t${namesOf(hostname)}`)]);
    case '/etc/resolv.conf':
      return lines(resolvers.map((address) => `nameserver ${address}`));
  }
}

/** Who has a domain is known without it, too. */
function namesOf(hostname: string): string {
  const [short] = hostname.split('.');
  return short === hostname ? hostname : `${hostname} ${short}`;
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join('');
}
