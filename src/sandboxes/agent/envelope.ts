import { Buffer } from 'node:buffer';
import { decode, encode, Tokenizer, type Token } from 'cborg';

/**
 * The frames between clients and the agent channel: length (u32), id (u32), flags (u8), then CBOR of `{v, t, p}` with
 * `p` as CBOR in a byte string. Numbers are big-endian.
 */

/** The highest generation of the protocol that the service speaks. Clients use the lower one of both. */
const GENERATION = 7;
/** The ids that a client may choose: from 1, and below this. */
const ID_END = 0x01ff_ffff;
export const MAX_FRAME = 4 * 1024 * 1024;
const HEAD = 5;
/** More than a command with the most arguments has. The time to decode a frame depends on the number of its values. */
const MAX_VALUES = 65_536;
const MAX_DETAIL = 200;

export const TERMINAL = 1;
export const SESSION_START = 2;

export type Payload = ReadonlyMap<string, unknown>;

export interface Envelope {
  id: number;
  flags: number;
  type: string;
  payload: Payload;
  /** The bytes of the whole frame. */
  size: number;
}

/** The first bytes of a channel: the range of ids, and the message that the agent is ready. */
export function greeting(version: string): Buffer {
  const range = Buffer.alloc(8);
  range.writeUInt32BE(1, 0);
  range.writeUInt32BE(ID_END, 4);
  const ready = { boot_time_ns: 0, init_time_ns: 0, ready_time_ns: 0, agent_version: version };
  return Buffer.concat([range, encodeEnvelope(0, 0, 'core.ready', ready)]);
}

export function encodeEnvelope(id: number, flags: number, type: string, payload: object): Buffer {
  const body = encode({ v: GENERATION, t: type, p: encode(payload, KEEP_ORDER) }, KEEP_ORDER);
  const head = Buffer.allocUnsafe(PREFIX + HEAD);
  head.writeUInt32BE(HEAD + body.length, 0);
  head.writeUInt32BE(id, 4);
  head.writeUInt8(flags, 8);
  return Buffer.concat([head, body]);
}

const KEEP_ORDER = { mapSorter: () => 0 };

/** A client broke the protocol: nothing that follows can be understood. */
export class ProtocolError extends Error {}

/** Cuts the bytes of a channel into envelopes, each in memory of its own. Throws ProtocolError. */
export class EnvelopeReader {
  private frame = EMPTY;
  private filled = 0;
  /** The length of the frame as far as it is known. */
  private wanted = PREFIX;

  *push(chunk: Buffer): Iterable<Envelope> {
    for (let at = 0; at < chunk.length;) {
      const count = Math.min(chunk.length - at, this.wanted - this.filled);
      this.reserve(this.filled + count);
      chunk.copy(this.frame, this.filled, at, at + count);
      this.filled += count;
      at += count;
      if (this.filled < this.wanted) return;
      if (this.wanted === PREFIX) this.wanted += readLength(this.frame);
      else yield parse(this.take());
    }
  }

  /** The memory of the frame that is not complete yet. */
  get held(): number {
    return this.frame.length;
  }

  /** The memory of a frame grows with the bytes that have arrived, not with the length that it claims. */
  private reserve(size: number): void {
    if (size <= this.frame.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.min(this.wanted, Math.max(size, 2 * this.filled)));
    this.frame.copy(larger, 0, 0, this.filled);
    this.frame = larger;
  }

  clear(): void {
    [this.frame, this.filled, this.wanted] = [EMPTY, 0, PREFIX];
  }

  private take(): Buffer {
    const { frame } = this;
    this.clear();
    return frame;
  }
}

const EMPTY: Buffer = Buffer.alloc(0);
const PREFIX = 4;

function readLength(frame: Buffer): number {
  const length = frame.readUInt32BE(0);
  if (length < HEAD || length > MAX_FRAME) throw new ProtocolError(`a frame has ${length} bytes`);
  return length;
}

function parse(frame: Buffer): Envelope {
  const body = toMap(decodeMap(frame.subarray(PREFIX + HEAD)));
  const [type, inner] = [body.get('t'), body.get('p')];
  if (typeof type !== 'string' || !(inner instanceof Uint8Array)) {
    throw new ProtocolError('a frame is not a map of "v", "t" and "p"');
  }
  return {
    id: frame.readUInt32BE(4),
    flags: frame.readUInt8(8),
    type,
    payload: toMap(decodeMap(inner)),
    size: frame.length,
  };
}

function decodeMap(bytes: Uint8Array): unknown {
  const options = { useMaps: true, allowIndefinite: true, rejectDuplicateMapKeys: true };
  try {
    return decode(bytes, { ...options, tokenizer: new BoundedTokenizer(bytes, options) });
  } catch (error) {
    throw new ProtocolError(`a frame is not valid CBOR: ${(error as Error).message.slice(0, MAX_DETAIL)}`);
  }
}

class BoundedTokenizer extends Tokenizer {
  private count = 0;

  override next(): Token {
    this.count += 1;
    if (this.count > MAX_VALUES) throw new RangeError(`it has more than ${MAX_VALUES} values`);
    return super.next();
  }
}

function toMap(value: unknown): Payload {
  if (!(value instanceof Map)) throw new ProtocolError('a frame has no map');
  return value as Payload;
}
