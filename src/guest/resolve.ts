import { Buffer } from 'node:buffer';
import { isIP, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';
import { decode, streamEncode, type DecodedPacket } from 'dns-packet';
import { limitTime } from '../lib/time-limit.js';
import type { Guest } from './guest.js';

const DNS_PORT = 53;
const DNS_HEADER = 12;
const RECURSION_DESIRED = 0x100;
const MAX_FILE = 65_536;
const SERVER_MS = 5_000;
const MAX_SERVERS = 3;
const MAX_SUFFIXES = 6;
const MAX_ADDRESSES = 16;
/** A guest may be the name server. 5,000 records with long names, which fit into an answer, take 65 ms to decode. */
const MAX_RECORDS = 64;
const NOT_FOUND = 'NXDOMAIN';
/** Characters that separate the parts of a URL: the conversion to ASCII drops them. */
const UNSAFE = /[\s\0/?#:@\\%[\]]/;
const NAME = /^(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;

/** The message is for the caller. */
export class NameError extends Error {}

/** The addresses of a name or address, with the files and name servers of the sandbox. IPv4 comes first. */
export async function resolveHost(
  guest: Guest,
  host: string,
  signal: AbortSignal,
): Promise<[string, ...string[]]> {
  if (isIP(host) !== 0 && !host.includes('%')) return [host];
  const isAbsolute = host.endsWith('.');
  const name = UNSAFE.test(host) ? '' : domainToASCII(host.replace(/\.$/, ''));
  if (isIP(name) !== 0) return [name];
  if (!NAME.test(name)) throw new NameError(`"${host.slice(0, 100)}" is no host name`);
  const [hosts, config] = await readConfiguration(guest);
  const listed = addressesIn(hosts, name);
  if (isNotEmpty(listed)) return listed;
  if (name === 'localhost' || name.endsWith('.localhost')) return ['127.0.0.1', '::1'];
  const { servers, suffixes, dots } = parseResolverConfig(config);
  if (servers.length === 0) throw new NameError(`the sandbox has no name server to look up "${name}"`);
  const expanded = isAbsolute ? [] : suffixes.map((suffix) => `${name}.${suffix}`);
  const isComplete = isAbsolute || name.split('.').length > dots;
  for (const candidate of isComplete ? [name, ...expanded] : [...expanded, name]) {
    const found = await lookUp(guest, servers, candidate, signal);
    if (isNotEmpty(found)) return found;
  }
  throw new NameError(`the name servers of the sandbox do not know "${name}"`);
}

async function readConfiguration(guest: Guest): Promise<[hosts: string, resolver: string]> {
  const files = guest.files();
  const read = async (path: string): Promise<string> => {
    const flags = { read: true, write: false, append: false, create: false, truncate: false };
    const handle = await files.open(path, { ...flags, createNew: false, mode: 0 });
    return (await files.read(handle, 0n, MAX_FILE)).toString();
  };
  try {
    const [hosts, resolver] = ['/etc/hosts', '/etc/resolv.conf'].map((path) => read(path).catch(() => ''));
    return [await hosts!, await resolver!];
  } finally {
    files.end();
  }
}

function* fieldsOf(text: string, comment: RegExp): Iterable<string[]> {
  for (const line of text.split('\n')) {
    yield line.replace(comment, '').trim().split(/\s+/);
  }
}

function addressesIn(hosts: string, name: string): string[] {
  const found: string[] = [];
  for (const [address = '', ...names] of fieldsOf(hosts, /#.*/)) {
    if (names.some((own) => own.toLowerCase() === name)) found.push(address);
  }
  return usable(found);
}

function parseResolverConfig(text: string) {
  const config = { servers: [] as string[], suffixes: [] as string[], dots: 1 };
  for (const [keyword, ...values] of fieldsOf(text, /[#;].*/)) {
    if (keyword === 'nameserver') config.servers.push(values[0] ?? '');
    else if (keyword === 'domain' || keyword === 'search') config.suffixes = values;
    else if (keyword === 'options') {
      const option = values.findLast((value) => /^ndots:\d+$/.test(value));
      if (option !== undefined) config.dots = Number(option.slice('ndots:'.length));
    }
  }
  return {
    ...config,
    servers: config.servers
      .filter((server) => isIP(server) !== 0 && !server.includes('%'))
      .slice(0, MAX_SERVERS),
    suffixes: config.suffixes
      .map((suffix) => suffix.toLowerCase().replace(/\.$/, ''))
      .filter((suffix) => NAME.test(suffix))
      .slice(0, MAX_SUFFIXES),
  };
}

/** Asks each server until one answers. */
async function lookUp(
  guest: Guest,
  servers: readonly string[],
  name: string,
  signal: AbortSignal,
): Promise<string[]> {
  if (!NAME.test(name)) return [];
  let failure: Error | undefined;
  for (const server of servers) {
    try {
      const answers = await Promise.all(
        (['A', 'AAAA'] as const).map((type) => ask(guest, server, { name, type }, signal)),
      );
      return usable(answers.flat());
    } catch (error) {
      failure = error as Error;
      if (signal.aborted) break;
    }
  }
  throw new NameError(`the name servers of the sandbox do not answer: ${failure!.message}`);
}

async function ask(
  guest: Guest,
  server: string,
  question: { name: string; type: 'A' | 'AAAA' },
  signal: AbortSignal,
): Promise<string[]> {
  const id = Math.floor(Math.random() * 0x1_0000);
  const request = streamEncode({ type: 'query', id, flags: RECURSION_DESIRED, questions: [question] });
  const answer = await exchange(guest, server, request, signal);
  const { rcode, answers } = decode(firstRecords(answer)) as DecodedPacket & { rcode: string };
  if (rcode === NOT_FOUND) return [];
  if (answer.readUInt16BE(0) !== id || rcode !== 'NOERROR') throw new Error(`${server} refused the query`);
  return (answers ?? []).flatMap((record) => (record.type === question.type ? [record.data] : []));
}

/** The message without its questions after the first, its answers after MAX_RECORDS, and its other sections. */
function firstRecords(message: Buffer): Buffer {
  if (message.length < DNS_HEADER) throw new Error('the answer is too short');
  const cut = Buffer.from(message);
  cut.writeUInt16BE(Math.min(cut.readUInt16BE(4), 1), 4);
  cut.writeUInt16BE(Math.min(cut.readUInt16BE(6), MAX_RECORDS), 6);
  cut.writeUInt32BE(0, 8);
  return cut;
}

/** Sends a message over a connection of its own, and returns the first one that arrives. */
function exchange(guest: Guest, server: string, request: Buffer, signal: AbortSignal): Promise<Buffer> {
  const { signal: ended, release } = limitTime(SERVER_MS, signal);
  const answer = new Promise<Buffer>((resolve, reject) => {
    let received: Buffer = Buffer.alloc(0);
    const connection = guest.connect(server, DNS_PORT, {
      connected: () => void connection.write(request),
      data: (data) => {
        received = Buffer.concat([received, data]);
        if (received.length < 2) return;
        const length = received.readUInt16BE(0);
        if (received.length < 2 + length) return;
        resolve(received.subarray(2, 2 + length));
        connection.close();
      },
      ended: () => connection.close(),
      closed: (failure) => reject(new Error(failure ?? `${server} closed the connection`)),
    });
    ended.addEventListener('abort', () => connection.close(), { once: true });
    if (ended.aborted) connection.close();
  });
  return answer.finally(release);
}

function usable(addresses: readonly string[]): string[] {
  const valid = addresses.filter((address) => isIP(address) !== 0 && !address.includes('%'));
  const [first, last] = [valid.filter((one) => !isIPv6(one)), valid.filter((one) => isIPv6(one))];
  return [...new Set([...first, ...last])].slice(0, MAX_ADDRESSES);
}

function isNotEmpty(list: string[]): list is [string, ...string[]] {
  return list.length > 0;
}
