import { readFile, stat } from 'node:fs/promises';
import { Slots } from '../fairness/slots.js';
import { exchange, type ServerAddress } from './dns/exchange.js';
import { NameServers, type Exchange } from './dns/name-servers.js';
import { questionOf } from './dns/question.js';
import { readServerAddress } from './dns/server-address.js';

const RESOLV_CONF = '/etc/resolv.conf';
/** The file is looked at again after this time. */
const CHECK_MS = 1_000;
const AT_ONCE = 2_048;
const LONGEST_QUERY = 512;
const LONGEST_MS = 60_000;

/** Where resolvers of C libraries ask when the file names no server. */
const DEFAULT_SERVERS: ServerAddress[] = [{ address: '127.0.0.1', port: 53 }];

interface Options {
  /** Instead of the file. Addresses, with a port or without. */
  servers?: readonly string[];
  path?: string;
  exchange?: Exchange;
}

/**
 * Asks the name servers of the machine for the gateway, which cannot reach stubs on the loopback, link-local addresses
 * and IPv6. The service parses neither queries nor answers: it compares ids and questions.
 */
export class MachineNames {
  private readonly slots = new Slots({ total: AT_ONCE, each: AT_ONCE });
  private current: { servers: NameServers; version: string } | undefined;
  private checkedAt = -Infinity;

  constructor(private readonly options: Options = {}) {}

  /** Undefined: no server answered in time, or the query is none. */
  async ask(query: Buffer, timeoutMs: number): Promise<Buffer | undefined> {
    if (query.length > LONGEST_QUERY || !questionOf(query) || (query[2]! & 0xf8) !== 0) return undefined;
    const release = this.slots.acquire('');
    if (!release) return undefined;
    try {
      const servers = await this.servers();
      return await servers.query(query, Math.min(timeoutMs, LONGEST_MS));
    } finally {
      release();
    }
  }

  private async servers(): Promise<NameServers> {
    const now = performance.now();
    if (this.current && now < this.checkedAt + CHECK_MS) return this.current.servers;
    this.checkedAt = now;
    const version = await this.version();
    if (this.current?.version === version) return this.current.servers;
    const servers = new NameServers(await this.read(), this.options.exchange ?? exchange);
    this.current = { servers, version };
    return servers;
  }

  /** Changes with the file. Network managers replace it or write into it, so time, size and inode count. */
  private async version(): Promise<string> {
    const { path = RESOLV_CONF, servers } = this.options;
    if (servers) return 'fixed';
    const found = await stat(path, { bigint: true }).catch(() => undefined);
    return found ? `${found.ino} ${found.size} ${found.mtimeNs}` : 'missing';
  }

  private async read(): Promise<ServerAddress[]> {
    const { path = RESOLV_CONF, servers } = this.options;
    const texts = servers ?? nameserversIn(await readFile(path, 'utf8').catch(() => ''));
    const found = texts.map(readServerAddress).filter((server) => server !== undefined);
    return found.length > 0 ? found : DEFAULT_SERVERS;
  }
}

/** All of them: C libraries take three, but the first ones may be those that are down. */
export function nameserversIn(text: string): string[] {
  return [...text.matchAll(/^[ \t]*nameserver[ \t]+(\S+)/gm)].map(([, address]) => address!);
}
