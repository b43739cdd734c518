/** Guests could fill the engine's own files beyond their disk limit, and its resolver reveals neighbours. */

export interface ResolverConfig {
  hostname: string;
  addresses: readonly string[];
  resolvers: readonly string[];
}

export const RESOLVER_FILES = ['/etc/hostname', '/etc/hosts', '/etc/resolv.conf'] as const;
export type ResolverFile = (typeof RESOLVER_FILES)[number];

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

function withShortName(hostname: string): string {
  const [short] = hostname.split('.');
  return short === hostname ? hostname : `${hostname} ${short}`;
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join('');
}
