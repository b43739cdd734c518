import { createHash, type Hash } from 'node:crypto';
import { Value } from 'typebox/value';
import type { Static, TSchema } from 'typebox';
import { ExplainedError } from '../../lib/explained-error.js';
import {
  FORMAT,
  Header,
  HEADER_ENTRY,
  Manifest,
  MANIFEST_ENTRY,
  MAX_JSON_BYTES,
  PIECE_BYTES,
  type Part,
} from './format.js';
import { parseJson } from '../../lib/json.js';

const BLOCK = 512;
const ZEROS = Buffer.alloc(BLOCK);
/** A number of pieces follows the name of a part. */
const PIECE_NAME = /^([a-z0-9_./-]+)\/(\d{9,12})$/;

/** The archive differs from the archive that was written. */
export class DamagedArchive extends ExplainedError {}

interface Entry {
  name: string;
  content: Buffer;
}

/**
 * Reads an archive once, in its order and in bounded memory. Throws DamagedArchive. This reader has blocks of its own:
 * `tar-stream` accepts an archive without its end, and one with something after it. It also buffers an extended header
 * of any size.
 */
export class ArchiveReader {
  private readonly entries: AsyncGenerator<Entry, void>;
  /** The entry after the latest piece of the part in progress. */
  private next: Entry | undefined;
  private headerSha256 = '';
  private readonly seen: Omit<Part, 'rows' | 'removed'>[] = [];

  /** `source`: uncompressed and decrypted. */
  constructor(source: AsyncIterable<Buffer>) {
    this.entries = entriesOf(source);
  }

  async readHeader(): Promise<Header> {
    const { name, content } = await this.peek();
    if (name !== HEADER_ENTRY) throw new DamagedArchive('it is not a backup of Sandkeep');
    this.next = undefined;
    this.headerSha256 = createHash('sha256').update(content).digest('hex');
    const json = descriptionIn(content) as { format?: unknown; product?: unknown };
    if (typeof json.format === 'number' && json.format > FORMAT) {
      throw new ExplainedError(
        `it has format ${json.format} of Sandkeep ${String(json.product)}, and this release reads format ${FORMAT}: use that release or a later one`,
      );
    }
    return check(Header, json);
  }

  /** The next part: its content, if it has this name; otherwise nothing. The caller reads it to its end. */
  async *readPart(name: string): AsyncGenerator<Buffer> {
    yield* this.pieces((entry) => entry === name, name);
  }

  /** Reads the content of every part. */
  async skipParts(): Promise<void> {
    for (;;) {
      const { name } = await this.peek();
      const [, part] = PIECE_NAME.exec(name) ?? [];
      if (part === undefined) return;
      for await (const _ of this.readPart(part));
    }
  }

  /** The last entry. Compares the parts that were read with the manifest. */
  async readManifest(): Promise<Manifest> {
    const { name, content } = await this.peek();
    if (name !== MANIFEST_ENTRY)
      throw new DamagedArchive(`it has "${printable(name)}" at an unexpected place`);
    this.next = undefined;
    const manifest = check(Manifest, descriptionIn(content));
    if (!(await this.entries.next()).done) throw new DamagedArchive('something follows its manifest');
    if (manifest.headerSha256 !== this.headerSha256) throw new DamagedArchive('its header was changed');
    // A part without content has no entry.
    const wanted = manifest.parts.filter(({ bytes }) => bytes > 0);
    for (const [index, part] of wanted.entries()) {
      const read = this.seen[index];
      if (read?.name !== part.name) throw new DamagedArchive(`its part ${part.name} is missing`);
      if (read.sha256 !== part.sha256 || read.bytes !== part.bytes)
        throw new DamagedArchive(`its part ${part.name} was changed`);
    }
    if (this.seen.length > wanted.length)
      throw new DamagedArchive(`its part ${this.seen[wanted.length]!.name} is not in its manifest`);
    return manifest;
  }

  private async *pieces(isWanted: (part: string) => boolean, name: string): AsyncGenerator<Buffer> {
    let hash: Hash | undefined;
    let bytes = 0;
    for (let number = 1; ; number += 1) {
      const entry = await this.peek();
      const [, part, piece] = PIECE_NAME.exec(entry.name) ?? [];
      if (part === undefined || !isWanted(part)) break;
      if (Number(piece) !== number) throw new DamagedArchive(`a piece of its part ${name} is missing`);
      this.next = undefined;
      hash ??= createHash('sha256');
      hash.update(entry.content);
      bytes += entry.content.length;
      yield entry.content;
    }
    if (hash) this.seen.push({ name, bytes, sha256: hash.digest('hex') });
  }

  private async peek(): Promise<Entry> {
    if (this.next) return this.next;
    const { value } = await this.entries.next();
    if (!value) throw new DamagedArchive('it is truncated: its end is missing');
    return (this.next = value);
  }
}

function check<T extends TSchema>(schema: T, json: unknown): Static<T> {
  if (Value.Check(schema, json)) return json;
  const [error] = Value.Errors(schema, json);
  throw new DamagedArchive(
    `its description is not valid: ${error?.instancePath ?? ''} ${error?.message ?? ''}`.trimEnd(),
  );
}

function descriptionIn(content: Buffer): unknown {
  const value = parseJson(content.toString('utf8'));
  if (value === undefined) throw new DamagedArchive('its description is no JSON');
  return value;
}

function printable(name: string): string {
  return name.replace(/[^\x20-\x7e]/g, '?');
}

/** Only the entries that the writer makes: files with a short name and a bounded size. */
async function* entriesOf(source: AsyncIterable<Buffer>): AsyncGenerator<Entry, void> {
  const bytes = new ByteSource(source);
  try {
    for (;;) {
      const header = await bytes.take(BLOCK);
      if (header.equals(ZEROS)) return await bytes.end();
      const { name, size } = readHeader(header);
      const content = await bytes.take(size);
      await bytes.take((BLOCK - (size % BLOCK)) % BLOCK);
      yield { name, content };
    }
  } finally {
    await bytes.close();
  }
}

function readHeader(header: Buffer): { name: string; size: number } {
  const text = (from: number, to: number) => header.toString('latin1', from, to).replace(/\0.*$/s, '');
  if (text(257, 263) !== 'ustar') throw new DamagedArchive('it is not a backup of Sandkeep');
  const written = Number.parseInt(text(148, 156), 8);
  const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
  if (written !== sum) throw new DamagedArchive('a header in it was changed');
  const name = text(0, 100);
  const size = /^[0-7]{11}$/.test(text(124, 136)) ? Number.parseInt(text(124, 136), 8) : NaN;
  const limit = PIECE_NAME.test(name) ? PIECE_BYTES : MAX_JSON_BYTES;
  if (!(size <= limit)) throw new DamagedArchive(`its entry "${printable(name)}" has an impossible size`);
  if (text(156, 157) !== '0' || text(345, 500) !== '')
    throw new DamagedArchive(`its entry "${printable(name)}" is no file`);
  return { name, size };
}

class ByteSource {
  private readonly iterator: AsyncIterator<Buffer>;
  private rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.iterator = source[Symbol.asyncIterator]();
  }

  async take(count: number): Promise<Buffer> {
    const taken: Buffer[] = [];
    for (let missing = count; missing > 0;) {
      if (this.rest.length === 0) {
        const { value, done } = await this.iterator.next();
        if (done) throw new DamagedArchive('it is truncated: its end is missing');
        this.rest = value;
        continue;
      }
      const piece = this.rest.subarray(0, missing);
      taken.push(piece);
      missing -= piece.length;
      this.rest = this.rest.subarray(piece.length);
    }
    return taken.length === 1 ? taken[0]! : Buffer.concat(taken, count);
  }

  /** Reads the second block of zeros, and the checksums that follow it in the compressed stream. */
  async end(): Promise<void> {
    const second = await this.take(BLOCK);
    const { done } = this.rest.length > 0 ? { done: false } : await this.iterator.next();
    if (!second.equals(ZEROS) || !done) throw new DamagedArchive('something follows its end');
  }

  async close(): Promise<void> {
    await this.iterator.return?.();
  }
}
