import { Decompress } from 'fzstd';
import { PullError } from './pull-error.js';
import type { Step } from './step.js';

const FRAME_MAGIC = 0xfd2fb528;
const SKIPPED_MAGIC = 0x184d2a50;
const SKIPPED_MASK = 0xfffffff0;
/** RFC 8878, section 3.1.1.1.2, recommends decoders to support this much. A frame allocates its window at once. */
const MAX_WINDOW_BYTES = 8 * 1_024 * 1_024;
const MAX_BLOCK_BYTES = 128 * 1_024;
const RAW = 0;
const REPEATED = 1;
const COMPRESSED = 2;
const CHECKSUM_BYTES = 4;

export function isZstd(begin: Buffer): boolean {
  return begin.length >= 4 && (begin.readUInt32LE() === FRAME_MAGIC || isSkipped(begin.readUInt32LE()));
}

/**
 * The frames of RFC 8878. Each step uncompresses one block: a few bytes can stand for 128 KiB, and a chunk of the
 * source for gigabytes. Checksums are not compared, because layers have a digest.
 */
export async function* unzstd(source: AsyncIterable<Buffer>, step: Step): AsyncGenerator<Buffer> {
  const reader = new ByteReader(source);
  try {
    while (!(await reader.isAtEnd())) {
      const magic = (await reader.take(4)).readUInt32LE();
      if (isSkipped(magic)) await reader.skip((await reader.take(4)).readUInt32LE());
      else if (magic === FRAME_MAGIC) yield* frame(reader, step);
      else throw broken('a layer has bytes that are no frame of zstd');
    }
  } finally {
    await reader.close();
  }
}

async function* frame(reader: ByteReader, step: Step): AsyncGenerator<Buffer> {
  const { header, hasChecksum } = await readHeader(reader);
  let output: Buffer[] = [];
  const decompress = new Decompress((data) => {
    output.push(Buffer.from(data.buffer, data.byteOffset, data.length));
  });
  decompress.push(header);
  for (let isLast = false; !isLast;) {
    const blockHeader = await reader.take(3);
    const bits = blockHeader.readUIntLE(0, 3);
    const type = (bits >> 1) & 3;
    const size = bits >> 3;
    isLast = (bits & 1) === 1;
    if (![RAW, REPEATED, COMPRESSED].includes(type) || size > MAX_BLOCK_BYTES)
      throw broken('a block of zstd is invalid');
    const content = await reader.take(type === REPEATED ? 1 : size);
    const checksum = await reader.take(isLast && hasChecksum ? CHECKSUM_BYTES : 0);
    await step(() => push(decompress, Buffer.concat([blockHeader, content, checksum]), isLast));
    if (output.some(({ length }) => length > MAX_BLOCK_BYTES)) throw broken('a block of zstd is too large');
    yield* output.filter(({ length }) => length > 0);
    output = [];
  }
}

function push(decompress: Decompress, block: Buffer, isLast: boolean): void {
  try {
    decompress.push(block, isLast);
  } catch (cause) {
    throw new PullError('broken', 'a layer cannot be uncompressed', { cause });
  }
}

/** With the magic number. */
async function readHeader(reader: ByteReader): Promise<{ header: Buffer; hasChecksum: boolean }> {
  const descriptor = await reader.take(1);
  const flags = descriptor[0]!;
  const isSingleSegment = (flags & 0x20) !== 0;
  const window = await reader.take(isSingleSegment ? 0 : 1);
  const dictionary = await reader.take([0, 1, 2, 4][flags & 3]!);
  const size = await reader.take(sizeBytes(flags >> 6, isSingleSegment));
  if (dictionary.some((byte) => byte !== 0)) throw broken('a layer needs a dictionary of zstd');
  const windowBytes = isSingleSegment ? contentSize(size) : windowSize(window[0]!);
  if (windowBytes > MAX_WINDOW_BYTES) {
    throw new PullError('unsupported', `a layer needs ${windowBytes} bytes of memory for zstd`);
  }
  const magic = Buffer.alloc(4);
  magic.writeUInt32LE(FRAME_MAGIC);
  return {
    header: Buffer.concat([magic, descriptor, window, dictionary, size]),
    hasChecksum: (flags & 4) !== 0,
  };
}

function sizeBytes(flag: number, isSingleSegment: boolean): number {
  return flag === 0 ? Number(isSingleSegment) : 2 ** flag;
}

function contentSize(size: Buffer): number {
  if (size.length === 8) return Number(size.readBigUInt64LE());
  return size.readUIntLE(0, size.length) + (size.length === 2 ? 256 : 0);
}

function windowSize(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}

function isSkipped(magic: number): boolean {
  return (magic & SKIPPED_MASK) >>> 0 === SKIPPED_MAGIC;
}

function broken(detail: string): PullError {
  return new PullError('broken', detail);
}

class ByteReader {
  private readonly chunks: AsyncIterator<Buffer>;
  private current: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.chunks = source[Symbol.asyncIterator]();
  }

  async isAtEnd(): Promise<boolean> {
    while (this.current.length === 0) {
      const next = await this.chunks.next();
      if (next.done === true) return true;
      this.current = next.value;
    }
    return false;
  }

  async close(): Promise<void> {
    await this.chunks.return?.();
  }

  /** At most the size of a block. */
  async take(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    await this.read(size, (part) => parts.push(part));
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  async skip(size: number): Promise<void> {
    await this.read(size, () => undefined);
  }

  private async read(size: number, onPart: (part: Buffer) => void): Promise<void> {
    for (let left = size; left > 0;) {
      if (await this.isAtEnd()) throw broken('a layer ends within a frame of zstd');
      const part = this.current.subarray(0, left);
      this.current = this.current.subarray(part.length);
      left -= part.length;
      onPart(part);
    }
  }
}
