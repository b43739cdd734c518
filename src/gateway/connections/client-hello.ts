/**
 * Reads the server name and the protocols of a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301). It accepts
 * only what the RFCs allow, because a server may understand an unclear hello in another way.
 */
import { canonicalName } from '../../network-policy/domains.js';

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const PROTOCOLS = 16;
const HOST_NAME = 0;
const RECORD_HEADER = 5;
const MESSAGE_HEADER = 4;
const LONGEST_RECORD = 16_384;
/** Clients that divide a hello make two. */
const MOST_RECORDS = 128;
const LONGEST_SESSION_ID = 32;
const RANDOM = 32;

export type ClientHello = HelloFields | 'more' | 'broken';

export interface HelloFields {
  /** Canonical. An IP address is possible too. */
  name: string | undefined;
  /** The protocols that the client offers (ALPN), in its order. */
  protocols: string[];
  /** The number of bytes of the records of the hello. */
  end: number;
}

/** Whether the bytes may be the begin of a record with a handshake message. */
export function looksLikeTls(bytes: Buffer): boolean {
  return bytes[0] === HANDSHAKE && (bytes.length < 2 || bytes[1] === 3);
}

/** `longest`: of the message. */
export function readClientHello(bytes: Buffer, longest: number): ClientHello {
  const fragments: Buffer[] = [];
  let length = 0;
  let wanted = MESSAGE_HEADER;
  let at = 0;
  while (length < wanted) {
    // It is read again with each piece that arrives, so its records are few.
    if (fragments.length >= MOST_RECORDS) return 'broken';
    const header = bytes.subarray(at, at + RECORD_HEADER);
    if (!isRecordOfHandshake(header)) return 'broken';
    if (header.length < RECORD_HEADER) return 'more';
    const end = at + RECORD_HEADER + header.readUInt16BE(3);
    const fragment = bytes.subarray(at + RECORD_HEADER, end);
    fragments.push(fragment);
    length += fragment.length;
    if (length > 0 && firstOf(fragments) !== CLIENT_HELLO) return 'broken';
    if (length >= MESSAGE_HEADER && wanted === MESSAGE_HEADER) {
      wanted += Buffer.concat(fragments, MESSAGE_HEADER).readUIntBE(1, 3);
      if (wanted > longest) return 'broken';
    }
    if (bytes.length < end) return 'more';
    at = end;
  }
  // A server that got another message in the record of the hello could see another hello.
  if (length > wanted) return 'broken';
  const found = readHello(new Fields(Buffer.concat(fragments).subarray(MESSAGE_HEADER)));
  return found === undefined ? 'broken' : { ...found, end: at };
}

function firstOf(fragments: readonly Buffer[]): number | undefined {
  return fragments.find(({ length }) => length > 0)?.[0];
}

function isRecordOfHandshake(header: Buffer): boolean {
  const [type = HANDSHAKE, major = 3, minor = 1] = header;
  if (type !== HANDSHAKE || major !== 3 || minor > 4) return false;
  if (header.length < RECORD_HEADER) return true;
  const length = header.readUInt16BE(3);
  return length > 0 && length <= LONGEST_RECORD;
}

type Extensions = Omit<HelloFields, 'end'>;

/** Undefined: the hello is broken. */
function readHello(hello: Fields): Extensions | undefined {
  const version = hello.number(2);
  if (version === undefined || version >> 8 !== 3) return undefined;
  hello.take(RANDOM);
  const sessionId = hello.block(1);
  const suites = hello.block(2);
  const compressions = hello.block(1);
  if (!sessionId || sessionId.length > LONGEST_SESSION_ID) return undefined;
  if (!suites || suites.length < 2 || suites.length % 2 === 1) return undefined;
  if (!compressions || compressions.length === 0) return undefined;
  // Old clients send no extensions.
  if (hello.isEmpty) return { name: undefined, protocols: [] };
  const extensions = hello.block(2);
  return extensions && hello.isEmpty ? readExtensions(extensions) : undefined;
}

function readExtensions(extensions: Fields): Extensions | undefined {
  const found: Extensions = { name: undefined, protocols: [] };
  const seen = new Set<number>();
  while (!extensions.isEmpty) {
    const type = extensions.number(2);
    const content = extensions.block(2);
    // Each type at most once: a server could take the first or the last one.
    if (type === undefined || !content || seen.has(type)) return undefined;
    seen.add(type);
    if (type === SERVER_NAME) {
      found.name = serverName(content);
      if (found.name === undefined) return undefined;
    } else if (type === PROTOCOLS) {
      const protocols = protocolNames(content);
      if (!protocols) return undefined;
      found.protocols = protocols;
    }
  }
  return found;
}

/** RFC 7301. */
function protocolNames(content: Fields): string[] | undefined {
  const list = content.block(2);
  const names: string[] = [];
  if (!list || !content.isEmpty) return undefined;
  while (!list.isEmpty) {
    const name = list.block(1);
    if (!name || name.isEmpty) return undefined;
    names.push(name.rest().toString('latin1'));
  }
  return names;
}

function serverName(content: Fields): string | undefined {
  const list = content.block(2);
  if (!list || !content.isEmpty || list.number(1) !== HOST_NAME) return undefined;
  const name = list.block(2)?.rest();
  // Names in other alphabets are sent in ASCII.
  if (!name || !list.isEmpty || name.some((byte) => byte > 0x7e)) return undefined;
  return canonicalName(name.toString('latin1'));
}

/** Reads big-endian fields. Each method gives undefined at the end of the bytes. */
class Fields {
  private at = 0;

  constructor(private readonly bytes: Buffer) {}

  get length(): number {
    return this.bytes.length - this.at;
  }

  get isEmpty(): boolean {
    return this.length === 0;
  }

  number(size: number): number | undefined {
    const bytes = this.take(size);
    return bytes?.readUIntBE(0, size);
  }

  /** With its length in front, in `size` bytes. */
  block(size: number): Fields | undefined {
    const length = this.number(size);
    const bytes = length === undefined ? undefined : this.take(length);
    return bytes && new Fields(bytes);
  }

  take(length: number): Buffer | undefined {
    if (length > this.length) {
      // Nothing behind a missing field counts.
      this.at = this.bytes.length;
      return undefined;
    }
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  rest(): Buffer {
    return this.bytes.subarray(this.at);
  }
}
