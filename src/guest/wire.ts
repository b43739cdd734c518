import { Buffer } from 'node:buffer';
import { bytesOfName } from '../lib/byte-names.js';
import { LAYOUT, LIMIT, WIDTHS, type Layout } from './protocol.js';

const HEADER = sizeOf(LAYOUT.header);
/** Each frame of output has a header, so these are read and written without a loop over the layout. */
const AT = offsetsOf(LAYOUT.header);

export interface Frame {
  channel: number;
  type: number;
  payload: Buffer;
}

export function encodeFrame(channel: number, type: number, ...parts: readonly Buffer[]): Buffer {
  const payload = parts.reduce((sum, part) => sum + part.length, 0);
  if (payload > LIMIT.payload) throw new RangeError(`a frame of ${payload} bytes is too long for the agent`);
  const header = Buffer.allocUnsafe(HEADER);
  header.writeUInt32LE(payload, AT.length);
  header.writeUInt32LE(channel, AT.channel);
  header.writeUInt8(type, AT.type);
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
        yield frameOf(whole);
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
      if (!isHeader) yield frameOf(whole);
    }
  }
}

function wholeLength(header: Buffer): number {
  const length = header.readUInt32LE(AT.length);
  if (length > LIMIT.payload) throw new RangeError(`the guest sent a frame of ${length} bytes`);
  return HEADER + length;
}

function frameOf(whole: Buffer): Frame {
  return {
    channel: whole.readUInt32LE(AT.channel),
    type: whole.readUInt8(AT.type),
    payload: whole.subarray(HEADER),
  };
}

type Fields<L extends Layout> = { [Field in keyof L]: L[Field] extends 'u64' | 'i64' ? bigint : number };

export function sizeOf(layout: Layout): number {
  return Object.values(layout).reduce((sum, width) => sum + WIDTHS[width], 0);
}

function offsetsOf<L extends Layout>(layout: L): Record<keyof L, number> {
  let at = 0;
  const offsets = Object.entries(layout).map(([name, width]) => {
    at += WIDTHS[width];
    return [name, at - WIDTHS[width]];
  });
  return Object.fromEntries(offsets) as Record<keyof L, number>;
}

export function encode<L extends Layout>(layout: L, fields: Fields<L>): Buffer {
  const bytes = Buffer.allocUnsafe(sizeOf(layout));
  let at = 0;
  for (const [name, width] of Object.entries(layout)) {
    const value = fields[name]!;
    at =
      typeof value === 'bigint'
        ? bytes.writeBigUInt64LE(BigInt.asUintN(64, value), at)
        : bytes.writeUIntLE(value, at, WIDTHS[width]);
  }
  return bytes;
}

/** Reads the fields at the beginning of a payload; 0 for those that it is too short for. */
export function decode<L extends Layout>(layout: L, payload: Buffer): Fields<L> {
  const fields: Record<string, number | bigint> = {};
  let at = 0;
  for (const [name, width] of Object.entries(layout)) {
    const end = at + WIDTHS[width];
    const isThere = end <= payload.length;
    if (width === 'u64') fields[name] = isThere ? payload.readBigUInt64LE(at) : 0n;
    else if (width === 'i64') fields[name] = isThere ? payload.readBigInt64LE(at) : 0n;
    else fields[name] = isThere ? payload.readUIntLE(at, WIDTHS[width]) : 0;
    at = end;
  }
  return fields as Fields<L>;
}

/** Writes the fields of a request. */
export class RequestWriter {
  private readonly parts: Buffer[] = [];

  u8(value: number): this {
    return this.fields({ value: 'u8' }, { value });
  }

  u32(value: number): this {
    return this.fields({ value: 'u32' }, { value });
  }

  fields<L extends Layout>(layout: L, fields: Fields<L>): this {
    return this.bytes(encode(layout, fields));
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
}
