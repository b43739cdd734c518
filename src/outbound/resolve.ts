import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';

/** All addresses of a name. */
export type Resolve = (host: string) => Promise<string[]>;

const HOSTS = '/etc/hosts';
/** Of each question to a name server, and how often it is asked, in milliseconds. */
const TIMEOUT = { timeout: 2_000, tries: 2 };

/**
 * As the system has it: its own table, then its name servers. Not by `lookup`, which holds one of four threads of this process
 * for as long as a name server is silent: whoever has a few such names would stop everything that reads a file.
 */
export const resolveBySystem: Resolve = async (host) => {
  const own = addressesIn(await readFile(HOSTS, 'utf8').catch(() => ''), host);
  if (own.length > 0) return own;
  const resolver = new Resolver(TIMEOUT);
  const found = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  const addresses = found.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  const failed = found.find((answer) => answer.status === 'rejected');
  if (addresses.length === 0 && failed) throw failed.reason;
  return addresses;
};

/** What a table such as `/etc/hosts` says of a name. */
export function addressesIn(table: string, host: string): string[] {
  const name = host.toLowerCase();
  return table
    .split('\n')
    .map((line) => line.replace(/#.*/, '').trim().toLowerCase().split(/\s+/))
    .filter(([address = '', ...names]) => isIP(address) !== 0 && names.includes(name))
    .map(([address]) => address!);
}
