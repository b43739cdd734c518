import { PullError } from './pull-error.js';
import { readEntry, type Extensions, type TarEntry } from './tar-entry.js';

/** Gets the entries of an archive as it passes. `content` belongs to the latest entry. */
export interface TarVisitor {
  entry(entry: TarEntry): void;
  content(bytes: Buffer): void;
}

const BLOCK = 512;
const ZEROS = Buffer.alloc(BLOCK);
const MAX_EXTRA_BYTES = 1_024 * 1_024;
/** One step reads those of an entry. A file has a dozen fields, and its attributes. */
const MAX_RECORDS = 1_000;
const [SPACE, EQUALS, LINE_END] = [0x20, 0x3d, 0x0a];

/**
 * Counts the entries of a layer as it passes. Throws PullError for an entry whose content is larger on the disk of the
 * engine than in the archive: the engine writes the holes of sparse files. Fields that archive readers understand
 * differently are refused too.
 * `tar-stream` shows no raw field of a header, and buffers an extended header of any size, so this scan reads blocks
 * itself.
 */
export class TarScan {
  entries = 0;
  private readonly header = Buffer.alloc(BLOCK);
  private headerHas = 0;
  /** With the padding. */
  private left = 0;
  private padding = 0;
  /** The bytes of the archive before this chunk. */
  private position = 0;
  private extra: { type: string; chunks: Buffer[]; length: number } | undefined;
  /** From the extended headers before an entry. */
  private extensions: Extensions = {};
  private hasBegun = false;
  private zeroBlocks = 0;

  /** Default: the entries are only counted and checked. */
  constructor(private readonly visitor?: TarVisitor) {}

  push(chunk: Buffer): void {
    this.read(chunk);
    this.position += chunk.length;
  }

  private read(chunk: Buffer): void {
    for (let at = 0; at < chunk.length && this.zeroBlocks < 2;) {
      if (this.left > 0) {
        const content = chunk.subarray(at, at + this.left);
        const bare = content.subarray(0, Math.max(0, this.left - this.padding));
        if (this.extra) this.extra.chunks.push(bare);
        else if (bare.length > 0) this.visitor?.content(bare);
        this.left -= content.length;
        at += content.length;
        if (this.left === 0) this.endExtra();
      } else {
        const copied = chunk.copy(this.header, this.headerHas, at);
        at += copied;
        this.headerHas += copied;
        if (this.headerHas < BLOCK) return;
        this.headerHas = 0;
        if (!this.hasBegun) refuseCompression(this.header);
        this.hasBegun = true;
        if (this.isEnd()) return;
        if (this.zeroBlocks === 0) this.beginEntry(this.position + at);
      }
    }
  }

  /** Two blocks of zeroes end an archive, and readers ignore what follows. */
  private isEnd(): boolean {
    if (this.zeroBlocks < 2) {
      if (this.header.equals(ZEROS)) this.zeroBlocks += 1;
      else if (this.zeroBlocks === 1)
        throw new PullError('broken', 'a layer has a block of zeroes between entries');
    }
    return this.zeroBlocks === 2;
  }

  end(): void {
    if (!this.hasBegun && this.headerHas > 0)
      throw new PullError('broken', 'a layer is shorter than a header of an archive');
    if (this.left > this.padding) throw new PullError('broken', 'a layer ends within a file');
  }

  private beginEntry(position: number): void {
    const type = String.fromCharCode(this.header[156]!);
    const size = readSize(this.header);
    if (EXTRA.has(type)) {
      if (size > MAX_EXTRA_BYTES) throw new PullError('broken', 'an extended header of a layer is too large');
      if (type === 'x') delete this.extensions.records;
      if (type === 'g') this.extensions = {};
      this.expect(size);
      this.extra = { type, chunks: [], length: size };
      if (size === 0) this.endExtra();
      return;
    }
    const extensions = this.extensions;
    this.extensions = {};
    const whole = sizeIn(extensions.records) ?? size;
    this.entries += 1;
    const isOldFile = type === OLD_FILE && whole === 0;
    if (type === GNU_SPARSE) throw new PullError('unsupported', HAS_SPARSE);
    if (type !== FILE && !WITHOUT_CONTENT.has(type) && !isOldFile) {
      throw new PullError('unsupported', `a layer has an entry of type ${JSON.stringify(type)}`);
    }
    const content = type === FILE ? whole : 0;
    this.expect(content);
    this.visitor?.entry(readEntry(this.header, extensions, { size: content, position }));
  }

  private expect(size: number): void {
    this.left = padded(size);
    this.padding = this.left - size;
  }

  private endExtra(): void {
    if (!this.extra) return;
    const { type, chunks, length } = this.extra;
    this.extra = undefined;
    const bytes = Buffer.concat(chunks, length);
    if (type === 'L' || type === 'K') {
      const end = bytes.indexOf(0);
      this.extensions[type === 'L' ? 'name' : 'target'] = textIn(bytes, 0, end === -1 ? length : end);
      return;
    }
    const records = readRecords(bytes);
    if ([...records.keys()].some((key) => key.startsWith('GNU.sparse.'))) {
      throw new PullError('unsupported', HAS_SPARSE);
    }
    // Readers of layers ignore the records that are for all entries.
    if (type === 'x') this.extensions.records = records;
  }
}

function sizeIn(records: ReadonlyMap<string, string> | undefined): number | undefined {
  const size = records?.get('size');
  if (size === undefined) return undefined;
  return checkedSize(/^\d+$/.test(size) ? Number(size) : NaN);
}

const COMPRESSIONS = ['\x1f\x8b', 'BZh', '\xfd7zXZ', '\x28\xb5\x2f\xfd'];
const ZSTD_SKIPPED = /^[\x50-\x5f]\x2a\x4d\x18/;

/** The engine would uncompress the layer again, to any size. Such bytes can be the name in a valid header as well. */
function refuseCompression(header: Buffer): void {
  const begin = header.toString('latin1', 0, 8);
  if (COMPRESSIONS.some((magic) => begin.startsWith(magic)) || ZSTD_SKIPPED.test(begin))
    throw new PullError('unsupported', 'a layer has an unsupported compression');
}

/** A text of its own. A part of a longer text would keep all of it in memory: V8 does not copy parts. */
function textIn(bytes: Buffer, begin: number, end: number): string {
  return bytes.toString('latin1', begin, end);
}

/** Records such as `12 size=345\n`, which begin with their own length. */
function readRecords(bytes: Buffer): Map<string, string> {
  const records = new Map<string, string>();
  for (let at = 0, count = 1; at < bytes.length; count += 1) {
    const begin = bytes.indexOf(SPACE, at) + 1;
    const digits = begin - 1 - at <= 7 ? textIn(bytes, at, begin - 1) : '';
    const end = at + Number(digits);
    const equals = bytes.indexOf(EQUALS, begin);
    const isWhole = /^\d+$/.test(digits) && end <= bytes.length && bytes[end - 1] === LINE_END;
    if (!isWhole || equals <= begin || equals >= end)
      throw new PullError('broken', 'an extended header of a layer is not valid');
    if (count > MAX_RECORDS)
      throw new PullError(
        'too_many_parts',
        `an extended header of a layer has more than ${MAX_RECORDS} records`,
      );
    records.set(textIn(bytes, begin, equals), textIn(bytes, equals + 1, end - 1));
    at = end;
  }
  return records;
}

const EXTRA = new Set(['x', 'g', 'L', 'K']);
const FILE = '0';
const GNU_SPARSE = 'S';
const HAS_SPARSE = 'a layer has a sparse file: pack it without the option --sparse (-S) of tar';
/** A directory, if its name ends with a slash. */
const OLD_FILE = '\0';
/** Links, devices, directories and pipes: the engine ignores their size. */
const WITHOUT_CONTENT = new Set(['1', '2', '3', '4', '5', '6']);

function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}

function readSize(header: Buffer): number {
  const field = header.subarray(124, 136);
  if ((field[0]! & 0x80) !== 0) {
    if (field[0] !== 0x80 || field.readUInt32BE(0) !== 0x80000000)
      throw new PullError('broken', 'a layer has an impossible size');
    return checkedSize(Number(field.readBigUInt64BE(4)));
  }
  const text = field
    .toString('latin1')
    .replace(/[\0 ]+$/, '')
    .replace(/^ +/, '');
  if (!/^[0-7]*$/.test(text)) throw new PullError('broken', 'a layer is no tar archive');
  return Number.parseInt(text || '0', 8);
}

function checkedSize(size: number): number {
  if (!Number.isSafeInteger(size)) throw new PullError('broken', 'a layer has an impossible size');
  return size;
}
