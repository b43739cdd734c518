import { createReadStream, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline, Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { ExplainedError } from '../../lib/explained-error.js';
import { ArchiveReader, DamagedArchive } from './reader.js';
import type { Header, Manifest } from './format.js';
import { isEncrypted, type Unlock } from './encryption.js';

export interface OpenOptions {
  /** For an encrypted archive. */
  unlock?: Unlock | undefined;
  /** The bytes of the file that were read so far. */
  onProgress?: ((bytes: number) => void) | undefined;
}

/** Passes a reader of the archive to `work`. Throws ExplainedError with the name of the file. */
export async function withArchive<T>(
  file: string,
  { unlock, onProgress = () => undefined }: OpenOptions,
  work: (reader: ArchiveReader) => Promise<T>,
): Promise<T> {
  let source: AsyncIterable<Buffer> | undefined;
  try {
    const first = await beginningOf(file);
    const counted = counter(onProgress);
    pipeline(createReadStream(file), counted, () => undefined);
    source = counted;
    if (isEncrypted(first)) {
      if (!unlock) {
        throw new ExplainedError(
          'it is encrypted: name its key with --identity-file, or its passphrase with --passphrase-file',
        );
      }
      source = await unlock(source);
    } else if (first.readUInt16BE(0) !== GZIP) throw new DamagedArchive('it is not a backup of Sandkeep');
    // A failure of the source destroys `content`, whose reader gets the error.
    const content = createGunzip();
    pipeline(source, content, () => undefined);
    return await work(new ArchiveReader(content));
  } catch (cause) {
    throw explain(file, cause);
  }
}

/** Reads the whole archive and its checksums; writes nothing. */
export async function verifyArchive(
  file: string,
  options: OpenOptions = {},
): Promise<{ header: Header; manifest: Manifest }> {
  return withArchive(file, options, async (reader) => {
    const header = await reader.readHeader();
    await reader.skipParts();
    return { header, manifest: await reader.readManifest() };
  });
}

export function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}

const GZIP = 0x1f8b;

async function beginningOf(file: string): Promise<Buffer> {
  const handle = await open(file, 'r');
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(64), 0, 64, 0);
    if (bytesRead < 2) throw new DamagedArchive('it is truncated: its end is missing');
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

function counter(onProgress: (bytes: number) => void): Transform {
  let bytes = 0;
  return new Transform({
    transform(chunk: Buffer, _, done) {
      onProgress((bytes += chunk.length));
      done(null, chunk);
    },
  });
}

function explain(file: string, cause: unknown): unknown {
  const { code, message, syscall } = cause as NodeJS.ErrnoException;
  if (cause instanceof DamagedArchive)
    return new DamagedArchive(`${file} cannot be used: ${message}`, { cause });
  if (cause instanceof ExplainedError)
    return new ExplainedError(`${file} cannot be used: ${message}`, { cause });
  if (code?.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE') {
    const isShort = /unexpected end of file|Premature close/.test(message);
    const fault = isShort ? 'it is truncated: its end is missing' : `it was changed (${message})`;
    return new DamagedArchive(`${file} cannot be used: ${fault}`, { cause });
  }
  if (syscall !== undefined) return new ExplainedError(`${file} cannot be read: ${message}`, { cause });
  return cause;
}
