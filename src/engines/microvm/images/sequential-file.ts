import type { FileHandle } from 'node:fs/promises';

const PIECE_BYTES = 256 * 1_024;
const HOLE_BYTES = 4_096;
const ZEROS = Buffer.alloc(HOLE_BYTES);

/** Collects bytes in order, and writes them in large pieces. Blocks of zeroes become holes. */
export class SequentialFile {
  private readonly full: Buffer[] = [];
  private piece = Buffer.allocUnsafe(PIECE_BYTES);
  private used = 0;
  /** The size of the file. */
  private written = 0;

  constructor(private readonly file: FileHandle) {}

  get position(): number {
    return this.written + this.full.length * PIECE_BYTES + this.used;
  }

  append(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const copied = bytes.copy(this.piece, this.used, at);
      this.use(copied);
      at += copied;
    }
  }

  /** Appends zeroes up to a multiple of `unit`. */
  align(unit: number): void {
    this.advance(Math.ceil(this.position / unit) * unit);
  }

  /** Appends zeroes up to a position. */
  advance(position: number): void {
    for (let left = position - this.position; left > 0;) {
      const filled = Math.min(left, PIECE_BYTES - this.used);
      this.piece.fill(0, this.used, this.used + filled);
      this.use(filled);
      left -= filled;
    }
  }

  /** Writes what fills whole pieces. */
  async drain(): Promise<void> {
    for (let piece = this.full.shift(); piece; piece = this.full.shift()) await this.write(piece);
  }

  /** Nothing is appended afterwards. */
  async end(): Promise<void> {
    await this.drain();
    await this.write(this.piece.subarray(0, this.used));
    this.used = 0;
    await this.file.truncate(this.written);
  }

  private use(bytes: number): void {
    this.used += bytes;
    if (this.used < PIECE_BYTES) return;
    this.full.push(this.piece);
    this.piece = Buffer.allocUnsafe(PIECE_BYTES);
    this.used = 0;
  }

  private async write(piece: Buffer): Promise<void> {
    const position = this.written;
    // A piece that left the list still counts for the position.
    this.written += piece.length;
    for (const [start, end] of dataIn(piece)) {
      for (let at = start; at < end;) {
        at += (await this.file.write(piece, at, end - at, position + at)).bytesWritten;
      }
    }
  }
}

function* dataIn(piece: Buffer): Iterable<[start: number, end: number]> {
  let start: number | undefined;
  for (let at = 0; at < piece.length; at += HOLE_BYTES) {
    const end = Math.min(at + HOLE_BYTES, piece.length);
    const isHole = piece.compare(ZEROS, 0, end - at, at, end) === 0;
    if (!isHole) start ??= at;
    else if (start !== undefined) {
      yield [start, at];
      start = undefined;
    }
  }
  if (start !== undefined) yield [start, piece.length];
}
