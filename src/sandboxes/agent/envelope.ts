import { Buffer } from 'node:buffer';
import { decode, encode } from 'cborg';

/**
 * The frames between clients and the agent channel: length (u32), id (u32), flags (u8), then CBOR of `{v, t, p}` with `p` as CBOR
 * in a byte string. Numbers are big-endian.
 */

/** The highest generation of the protocol that the service speaks. Clients use the lower one of both. */
const GENERATION = 7;
/** The ids that a client may choose: from 1, and below this. */
const ID_END = 0x01ff_ffff;
const MAX_FRAME = 4 * 1024 * 1024;
const HEAD = 5;

export const TERMINAL = 1;

export type Payload = ReadonlyMap<string, unknown>;

export interface Envelope {
  id: number;
  flags: number;
  type: string;
  payload: Payload;
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
  const body = encode({ v: GENERATION, t: type, p: encode(payload) }, KEEP_ORDER);
  const head = Buffer.allocUnsafe(4 + HEAD);
  head.writeUInt32BE(HEAD + body.length, 0);
  head.writeUInt32BE(id, 4);
  head.writeUInt8(flags, 8);
  return Buffer.concat([head, body]);
}

const KEEP_ORDER = { mapSorter: () => 0 };

/** A client broke the protocol: nothing that follows can be understood. */
export class ProtocolError extends Error {}

/** Cuts the bytes of a channel into envelopes. Throws ProtocolError. */
export class EnvelopeReader {
  private chunks: Buffer[] = [];
  private size = 0;

  *push(chunk: Buffer): Iterable<Envelope> {
    this.chunks.push(chunk);
    this.size += chunk.length;
    while (this.size >= 4) {
      const length = this.peek(4).readUInt32BE(0);
      if (length < HEAD || length > MAX_FRAME) throw new ProtocolError(`a frame has ${length} bytes`);
      if (this.size < 4 + length) return;
      yield parse(this.take(4 + length));
    }
  }

  private peek(count: number): Buffer {
    if (this.chunks[0]!.length < count) this.chunks = [Buffer.concat(this.chunks)];
    return this.chunks[0]!;
  }

  private take(count: number): Buffer {
    const whole = this.peek(count);
    if (whole.length === count) this.chunks.shift();
    else this.chunks[0] = whole.subarray(count);
    this.size -= count;
    return whole.subarray(0, count);
  }
}

function parse(frame: Buffer): Envelope {
  const body = toMap(decodeMap(frame.subarray(4 + HEAD)));
  const [type, inner] = [body.get('t'), body.get('p')];
  if (typeof type !== 'string' || !(inner instanceof Uint8Array)) {
    throw new ProtocolError('a frame is not a map of "v", "t" and "p"');
  }
  return {
    id: frame.readUInt32BE(4),
    flags: frame.readUInt8(8),
    type,
    payload: toMap(decodeMap(inner)),
  };
}

function decodeMap(bytes: Uint8Array): unknown {
  try {
    return decode(bytes, { useMaps: true, allowIndefinite: true, rejectDuplicateMapKeys: true });
  } catch (error) {
    throw new ProtocolError(`a frame is not valid CBOR: ${(error as Error).message}`);
  }
}

function toMap(value: unknown): Payload {
  if (!(value instanceof Map)) throw new ProtocolError('a frame has no map');
  return value as Payload;
}
