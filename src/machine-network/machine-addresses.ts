import { readFileSync } from 'node:fs';

/**
 * The addresses of this machine, without loopback. The kernel answers for those of a link without a carrier too, such
 * as a bridge without a running container, and `networkInterfaces` leaves them out.
 */
export function machineAddresses(read: (path: string) => string = readTable): string[] {
  return [
    ...new Set([
      ...localIpv4(read('/proc/self/net/fib_trie')),
      // The machine may have no IPv6.
      ...localIpv6(read('/proc/self/net/if_inet6')),
    ]),
  ];
}

function localIpv4(table: string): string[] {
  // An address has a line of its own for each of its routes.
  return [...table.matchAll(/\|-- (\S+)(?:\n\s+\/\d.*)*?\n\s+\/32 host LOCAL/g)]
    .map(([, address]) => address!)
    .filter((address) => !address.startsWith('127.'));
}

/**
 * Each sandbox has a link named `veth` on the bridge, with an address that answers nobody. The rules close it as that
 * of a neighbour. Thousands of them would be in the rules of each sandbox.
 */
function localIpv6(table: string): string[] {
  return table.split('\n').flatMap((line) => {
    const [digits, , , , , link] = line.trim().split(/\s+/);
    if (!digits || !link || link === 'lo' || (link.startsWith('veth') && digits.startsWith('fe8'))) return [];
    return [withColons(digits)];
  });
}

/** In the short form, which the URL parser knows. */
function withColons(digits: string): string {
  const long = digits.match(/.{4}/g)!.join(':');
  return new URL(`http://[${long}]`).hostname.slice(1, -1);
}

function readTable(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
