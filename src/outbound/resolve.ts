import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';

export type Resolve = (host: string) => Promise<string[]>;

const HOSTS = '/etc/hosts';
const QUERY = { timeout: 2_000, tries: 2 };

/**
 * Reads /etc/hosts, then queries the name servers (default: those of the system). While a name server is silent,
 * `dns.lookup` would hold one of four threads, and a few such names would stop all file access.
 */
export function makeResolver(servers?: readonly string[]): Resolve {
  return async (name) => {
    const host = name.replace(/\.$/, '');
    const own = addressesIn(await readFile(HOSTS, 'utf8').catch(() => ''), host);
    if (own.length > 0) return own;
    const resolver = new Resolver(QUERY);
    if (servers) resolver.setServers(servers);
    const found = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const addresses = found.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
    const failed = found.find((answer) => answer.status === 'rejected');
    if (addresses.length === 0 && failed) throw failed.reason;
    return addresses;
  };
}

export const resolveBySystem = makeResolver();

/** The addresses of a name in a table such as `/etc/hosts`. */
export function addressesIn(table: string, host: string): string[] {
  const name = host.toLowerCase();
  return table
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim().toLowerCase().split(/\s+/))
    .filter(([address = '', ...names]) => isIP(address) !== 0 && names.includes(name))
    .map(([address]) => address!);
}
