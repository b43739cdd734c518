import { PullError } from './pull-error.js';

const BLOCK = 512;
const ZEROS = Buffer.alloc(BLOCK);
const MAX_EXTRA_BYTES = 1_024 * 1_024;

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
  private left = 0;
  private extra: { chunks: Buffer[]; length: number } | undefined;
  private isGlobal = false;
  /** From the extended header before an entry. */
  private extendedSize: number | undefined;
  private hasBegun = false;

  push(chunk: Buffer): void {
    for (let at = 0; at < chunk.length;) {
      if (this.left > 0) {
        const content = chunk.subarray(at, at + this.left);
        this.extra?.chunks.push(content);
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
        if (!this.header.equals(ZEROS)) this.beginEntry();
      }
    }
  }

  end(): void {
    if (!this.hasBegun && this.headerHas > 0)
      throw new PullError('broken', 'a layer is shorter than a header of an archive');
  }

  private beginEntry(): void {
    const type = String.fromCharCode(this.header[156]!);
    const size = readSize(this.header);
    if (EXTRA.has(type)) {
      if (size > MAX_EXTRA_BYTES) throw new PullError('broken', 'an extended header of a layer is too large');
      if (type === 'x' || type === 'g') {
        this.extendedSize = undefined;
        this.extra = { chunks: [], length: size };
      }
      this.left = padded(size);
      this.isGlobal = type === 'g';
      if (size === 0) this.endExtra();
      return;
    }
    const whole = this.extendedSize ?? size;
    this.extendedSize = undefined;
    this.entries += 1;
    if (type === FILE) this.left = padded(whole);
    else if (!WITHOUT_CONTENT.has(type) && (type !== OLD_FILE || whole > 0)) {
      throw new PullError('unsupported', `a layer has an entry of type ${JSON.stringify(type)}`);
    }
  }

  private endExtra(): void {
    if (!this.extra) return;
    const { chunks, length } = this.extra;
    this.extra = undefined;
    const records = readRecords(Buffer.concat(chunks).subarray(0, length).toString('latin1'));
    if ([...records.keys()].some((key) => key.startsWith('GNU.sparse.'))) {
      throw new PullError('unsupported', 'a layer has a sparse file');
    }
    const size = records.get('size');
    if (size !== undefined && !this.isGlobal)
      this.extendedSize = checkedSize(/^\d+$/.test(size) ? Number(size) : NaN);
  }
}

const COMPRESSIONS = ['\x1f\x8b', 'BZh', '\xfd7zXZ', '\x28\xb5\x2f\xfd'];
const ZSTD_SKIPPED = /^[\x50-\x5f]\x2a\x4d\x18/;

/** The engine would uncompress the layer again, to any size. Such bytes can be the name in a valid header as well. */
function refuseCompression(header: Buffer): void {
  const begin = header.toString('latin1', 0, 8);
  if (COMPRESSIONS.some((magic) => begin.startsWith(magic)) || ZSTD_SKIPPED.test(begin))
    throw new PullError('unsupported', 'a layer has an unsupported compression');
}

/** Records such as `12 size=345\n`, which begin with their own length. */
function readRecords(text: string): Map<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < text.length;) {
    const digits = /^\d{1,7} /.exec(text.slice(at, at + 8))?.[0] ?? '';
    const end = at + Number(digits);
    const record = text.slice(at + digits.length, end);
    const equals = record.indexOf('=');
    if (digits === '' || end > text.length || !record.endsWith('\n') || equals < 1) {
      throw new PullError('broken', 'an extended header of a layer is not valid');
    }
    records.set(record.slice(0, equals), record.slice(equals + 1, -1));
    at = end;
  }
  return records;
}

const EXTRA = new Set(['x', 'g', 'L', 'K']);
const FILE = '0';
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
