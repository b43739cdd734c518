import { Buffer } from 'node:buffer';
import { bytesOfName } from '../lib/byte-names.js';

/** The frames of `guest/agent.c`: length of the payload (u32), channel (u32), type (u8), payload. Little-endian. */

export const REQUEST = {
  exec: 1,
  input: 2,
  resize: 3,
  signal: 4,
  credit: 5,
  close: 6,
  files: 7,
  endOwner: 8,
  connect: 9,
  ping: 10,
} as const;

export const ANSWER = {
  ready: 128,
  started: 129,
  stdout: 130,
  stderr: 131,
  exited: 132,
  failed: 133,
  consumed: 134,
  inputFailed: 135,
  done: 136,
  connected: 137,
  ended: 138,
  closed: 139,
  pong: 140,
} as const;

const HEADER = 9;
/** The longest payload in either direction. The agent has room for no more. */
export const MAX_PAYLOAD = 262_144;

export interface Frame {
  channel: number;
  type: number;
  payload: Buffer;
}

export function encodeFrame(channel: number, type: number, ...parts: readonly Buffer[]): Buffer {
  const payload = parts.reduce((sum, part) => sum + part.length, 0);
  if (payload > MAX_PAYLOAD) throw new RangeError(`a frame of ${payload} bytes is too long for the agent`);
  const header = Buffer.allocUnsafe(HEADER);
  header.writeUInt32LE(payload, 0);
  header.writeUInt32LE(channel, 4);
  header.writeUInt8(type, 8);
  return Buffer.concat([header, ...parts]);
}

/** Cuts a stream of bytes into frames. Throws RangeError for a frame that is too long. */
export class FrameReader {
  /** The frame that is not complete yet; only its header while its length is not known. */
  private partial: Buffer = Buffer.allocUnsafe(HEADER);
  private has = 0;

  *push(chunk: Buffer): Iterable<Frame> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.has === 0 && rest.length >= HEADER && rest.length >= wholeLength(rest)) {
        const whole = rest.subarray(0, wholeLength(rest));
        rest = rest.subarray(whole.length);
        yield decode(whole);
        continue;
      }
      const copied = rest.copy(this.partial, this.has);
      this.has += copied;
      rest = rest.subarray(copied);
      if (this.has < this.partial.length) return;
      const whole = this.partial;
      const isHeader = this.has === HEADER && wholeLength(whole) > HEADER;
      this.partial = Buffer.allocUnsafe(isHeader ? wholeLength(whole) : HEADER);
      this.has = isHeader ? whole.copy(this.partial) : 0;
      if (!isHeader) yield decode(whole);
    }
  }
}

function wholeLength(header: Buffer): number {
  const length = header.readUInt32LE(0);
  if (length > MAX_PAYLOAD) throw new RangeError(`the guest sent a frame of ${length} bytes`);
  return HEADER + length;
}

function decode(whole: Buffer): Frame {
  return { channel: whole.readUInt32LE(4), type: whole.readUInt8(8), payload: whole.subarray(HEADER) };
}

/** The number at the beginning of a payload; 0 when it is too short for one. */
export function readNumber(payload: Buffer): number {
  return payload.length >= 4 ? payload.readUInt32LE(0) : 0;
}

/** Writes the fields of a request. */
export class RequestWriter {
  private readonly parts: Buffer[] = [];

  u8(value: number): this {
    return this.add(1, (part) => part.writeUInt8(value));
  }

  u16(value: number): this {
    return this.add(2, (part) => part.writeUInt16LE(value));
  }

  u32(value: number): this {
    return this.add(4, (part) => part.writeUInt32LE(value));
  }

  u64(value: bigint): this {
    return this.add(8, (part) => part.writeBigUInt64LE(BigInt.asUintN(64, value)));
  }

  /** Ends with NUL, so the text has none. */
  text(value: string): this {
    if (value.includes('\0')) throw new RangeError('a text for the guest has a NUL character');
    this.parts.push(Buffer.from(`${value}\0`));
    return this;
  }

  /** A path in the form of `lib/byte-names.ts`. */
  path(value: string): this {
    if (value.includes('\0')) throw new RangeError('a path for the guest has a NUL character');
    this.parts.push(bytesOfName(value), Buffer.of(0));
    return this;
  }

  bytes(value: Buffer): this {
    this.parts.push(value);
    return this;
  }

  end(): Buffer {
    return Buffer.concat(this.parts);
  }

  private add(size: number, write: (part: Buffer) => void): this {
    const part = Buffer.allocUnsafe(size);
    write(part);
    this.parts.push(part);
    return this;
  }
}
