import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../lib/tar-entry.js';
import type { Encrypt } from './encryption.js';
import {
  HEADER_ENTRY,
  MANIFEST_ENTRY,
  PIECE_BYTES,
  type Header,
  type Manifest,
  type Part,
} from './format.js';

/** The fastest level: higher ones take several times as long for a tenth less. */
const COMPRESSION = 1;

/** Writes an archive in bounded memory, as fast as its target takes it. */
export class ArchiveWriter {
  private readonly gzip = createGzip({ level: COMPRESSION });
  private readonly broken = new AbortController();
  private readonly written: Promise<void>;
  private readonly parts: Part[] = [];
  private headerSha256 = '';

  private readonly signal: AbortSignal | undefined;

  constructor(
    target: Writable,
    { encrypt, signal }: { encrypt?: Encrypt | undefined; signal?: AbortSignal | undefined },
  ) {
    this.signal = signal;
    this.written = encrypt ? pipeline(this.gzip, encrypt, target) : pipeline(this.gzip, target);
    this.written.catch((error: unknown) => this.broken.abort(error));
  }

  async writeHeader(header: Header): Promise<void> {
    const json = Buffer.from(JSON.stringify(header));
    this.headerSha256 = createHash('sha256').update(json).digest('hex');
    await this.writeEntry(HEADER_ENTRY, [json]);
  }

  /** The part appears in the manifest as it is when the manifest is written. */
  async writePart(name: string, content: AsyncIterable<Buffer> | Iterable<Buffer>): Promise<Part> {
    const hash = createHash('sha256');
    let bytes = 0;
    let pieces = 0;
    const flush = async (chunks: readonly Buffer[]) => {
      pieces += 1;
      await this.writeEntry(`${name}/${String(pieces).padStart(9, '0')}`, chunks);
    };
    let open: Buffer[] = [];
    let length = 0;
    for await (const chunk of content) {
      hash.update(chunk);
      bytes += chunk.length;
      for (let at = 0; at < chunk.length;) {
        const taken = chunk.subarray(at, at + PIECE_BYTES - length);
        open.push(taken);
        length += taken.length;
        at += taken.length;
        if (length < PIECE_BYTES) continue;
        await flush(open);
        open = [];
        length = 0;
      }
    }
    if (length > 0) await flush(open);
    const part: Part = { name, bytes, sha256: hash.digest('hex') };
    this.parts.push(part);
    return part;
  }

  async finish(warnings: string[]): Promise<Manifest> {
    const manifest = { headerSha256: this.headerSha256, parts: this.parts, warnings };
    await this.writeEntry(MANIFEST_ENTRY, [Buffer.from(JSON.stringify(manifest))]);
    await this.write(END_OF_ARCHIVE);
    this.gzip.end();
    await this.written;
    return manifest;
  }

  /** Ends an archive that stays incomplete. */
  async abort(): Promise<void> {
    this.gzip.destroy();
    await this.written.catch(() => undefined);
  }

  private async writeEntry(name: string, chunks: readonly Buffer[]): Promise<void> {
    const size = chunks.reduce((sum, { length }) => sum + length, 0);
    await this.write(tarHeader(name, size, 0o600));
    for (const chunk of chunks) await this.write(chunk);
    await this.write(tarPadding(size));
  }

  private async write(bytes: Buffer): Promise<void> {
    this.signal?.throwIfAborted();
    this.broken.signal.throwIfAborted();
    if (bytes.length === 0 || this.gzip.write(bytes)) return;
    await once(this.gzip, 'drain', { signal: this.broken.signal }).catch((error: unknown) => {
      this.broken.signal.throwIfAborted();
      throw error;
    });
  }
}
