import { decode, type Answer, type DecodedPacket, type SoaAnswer, type StringAnswer } from 'dns-packet';
import { RCODES, rcodeOf, TYPES } from './question.js';

const MOST_LINKS = 16;
/** A name with more addresses has some of them. Each goes into sets of the kernel. */
const MOST_ADDRESSES = 128;
const MOST_RECORDS = 256;
/** The time to read a message grows with the product of its records and the labels of their names. */
const MOST_RECORDS_OF_MESSAGE = 512;
const LONGEST_MESSAGE = 16_384;
/** Pointers that lead to pointers. Encoders make none. */
const DEEPEST_POINTERS = 4;
/** Also of an answer that says more: a name that is new must not stay missing for hours. */
const LONGEST_NEGATIVE_SECS = 300;
const GREATEST_TTL = 2 ** 31 - 1;

/** The records that answer a question, from its name on over the chain of aliases. */
export interface Resolution {
  rcode: typeof RCODES.noError | typeof RCODES.nxDomain;
  answers: Answer[];
  authorities: Answer[];
  /** The targets of the aliases, in lower case. */
  aliases: string[];
  /** IPv4 addresses of the last name. */
  addresses: string[];
  /** The least of the records. 0: not to be kept. */
  ttlSecs: number;
}

/** Undefined: the name server failed, or its answer is malformed. `name` is canonical. */
export function readResolution(message: Buffer, name: string, type: number): Resolution | undefined {
  const rcode = rcodeOf(message);
  if (rcode !== RCODES.noError && rcode !== RCODES.nxDomain) return undefined;
  const packet = decodeSafely(message);
  if (!packet) return undefined;
  const chain = chainOf(packet.answers ?? [], name, type);
  if (!chain) return undefined;
  const last = chain.at(-1)?.data.toLowerCase() ?? name;
  const wanted = wordOf(type);
  const found = (packet.answers ?? [])
    .filter((record) => record.type === wanted && record.name.toLowerCase() === last && hasValidNames(record))
    .filter((record) => wanted !== 'CNAME' || !chain.includes(record as Alias))
    .slice(0, wanted === 'A' ? MOST_ADDRESSES : MOST_RECORDS);
  const authorities = found.length === 0 ? (packet.authorities ?? []).filter(isSoaOf(last)).slice(0, 1) : [];
  const [soa] = authorities;
  const answers = [...chain, ...found];
  const negativeTtl = Math.min(soa ? ttlOf(soa) : 0, soa?.data.minimum ?? 0, LONGEST_NEGATIVE_SECS);
  const ttlSecs = Math.min(...answers.map(ttlOf), ...(found.length === 0 ? [negativeTtl] : []));
  return {
    rcode,
    answers,
    authorities,
    aliases: chain.map(({ data }) => data.toLowerCase()),
    addresses: found.flatMap((record) => (record.type === 'A' ? [record.data] : [])),
    ttlSecs,
  };
}

type Alias = StringAnswer & { type: 'CNAME' };

/** Undefined: the aliases form a loop, or too long a chain. */
function chainOf(records: readonly Answer[], name: string, type: number): Alias[] | undefined {
  const chain: Alias[] = [];
  if (type === TYPES.CNAME) return chain;
  const targets = new Map<string, Alias>();
  for (const record of records)
    if (record.type === 'CNAME' && hasValidNames(record))
      targets.set(record.name.toLowerCase(), record as Alias);
  for (let alias = targets.get(name); alias; alias = targets.get(alias.data.toLowerCase())) {
    if (chain.length >= MOST_LINKS) return undefined;
    chain.push(alias);
  }
  return chain;
}

function decodeSafely(message: Buffer): DecodedPacket | undefined {
  if (!isBounded(message)) return undefined;
  try {
    return decode(message);
  } catch {
    return undefined;
  }
}

/**
 * The library follows any number of pointers for each name, which takes seconds for a hostile message. Bytes that are
 * no pointers are taken for some here: by chance they form no deep chain.
 */
function isBounded(message: Buffer): boolean {
  if (message.length > LONGEST_MESSAGE) return false;
  const records = message.readUInt16BE(6) + message.readUInt16BE(8) + message.readUInt16BE(10);
  if (records > MOST_RECORDS_OF_MESSAGE) return false;
  const depths = new Uint8Array(message.length);
  for (let at = 0; at + 1 < message.length; at += 1) {
    if (message[at]! < 0xc0) continue;
    const target = message.readUInt16BE(at) & 0x3fff;
    if (target >= at || message[target]! < 0xc0) continue;
    depths[at] = depths[target]! + 1;
    if (depths[at]! > DEEPEST_POINTERS) return false;
  }
  return true;
}

function wordOf(type: number): string | undefined {
  return Object.entries(TYPES).find(([, number]) => number === type)?.[0];
}

function ttlOf(record: Answer): number {
  const ttl = 'ttl' in record ? (record.ttl ?? 0) : 0;
  // RFC 2181: the upper bit is no part of a lifetime.
  return ttl > GREATEST_TTL ? 0 : ttl;
}

function isSoaOf(name: string) {
  return (record: Answer): record is SoaAnswer => {
    if (record.type !== 'SOA' || !hasValidNames(record)) return false;
    const zone = record.name.toLowerCase();
    return zone === '.' || name === zone || name.endsWith(`.${zone}`);
  };
}

/** The library joins labels with dots, so a label with a dot would become another name when it is encoded again. */
function hasValidNames(record: Answer): boolean {
  return namesIn(record).every(isValidName);
}

function namesIn(record: Answer): string[] {
  switch (record.type) {
    case 'CNAME':
    case 'NS':
    case 'PTR':
      return [record.name, record.data];
    case 'MX':
      return [record.name, record.data.exchange];
    case 'SRV':
      return [record.name, record.data.target];
    case 'NAPTR':
      return [record.name, record.data.replacement];
    case 'SOA':
      return [record.name, record.data.mname, record.data.rname];
    default:
      return [record.name];
  }
}

function isValidName(name: string): boolean {
  if (name === '.' || name === '') return true;
  return name.length <= 253 && name.split('.').every((label) => /^[\x21-\x2d\x2f-\x7e]{1,63}$/.test(label));
}
