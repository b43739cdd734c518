import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { ExplainedError } from '../lib/explained-error.js';
import { ignoreMissing } from '../volumes/storage/guest-path.js';
import { PullError } from './pull-error.js';
import type { Step } from './step.js';
import { TarScan } from './tar-scan.js';

const CHUNK_BYTES = 256 * 1_024;
/** It has 32 headers at most. */
const PIECE_BYTES = 16 * 1_024;
/** An image has few files in an archive. */
const MAX_FILES = 10_000;
/** The bound of all names together: an extended header may have a name of 1 MiB. */
const MAX_NAME_BYTES = 16 * 1_024 * 1_024;
const MAX_SYMLINKS = 8;

interface ArchivedFile {
  size: number;
  content: AsyncIterable<Buffer>;
}

/** The files of an archive of `docker save`, or of a directory in the OCI layout. */
export interface ImageArchive {
  /** Undefined: there is no such file, or it is larger. */
  read(name: string, maxBytes: number): Promise<Buffer | undefined>;
  /** Throws ExplainedError without the file. */
  stream(name: string): Promise<ArchivedFile>;
  close(): Promise<void>;
}

/** Throws ExplainedError. */
export async function openArchive(path: string): Promise<ImageArchive> {
  const handle = await open(path, constants.O_RDONLY).catch((cause: NodeJS.ErrnoException) => {
    throw new ExplainedError(`cannot read ${path}: ${cause.message}`, { cause });
  });
  const stats = await handle.stat();
  if (stats.isDirectory()) {
    await handle.close();
    return directoryArchive(path);
  }
  try {
    if (!stats.isFile())
      throw new ExplainedError(`cannot read ${path}: it is no file: write the archive to a file first`);
    return await readTarArchive(path, handle);
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function directoryArchive(path: string): ImageArchive {
  const openFile = async (name: string) => {
    const inside = posix.normalize(name);
    if (inside.startsWith('/') || inside.split('/').includes('..')) return undefined;
    return open(join(path, inside), 'r').catch(ignoreMissing);
  };
  return {
    async read(name, maxBytes) {
      const file = await openFile(name);
      if (!file) return undefined;
      try {
        const { size } = await file.stat();
        return size > maxBytes ? undefined : await file.readFile();
      } finally {
        await file.close();
      }
    },
    async stream(name) {
      const file = await openFile(name);
      if (!file) throw missing(path, name);
      const { size } = await file.stat();
      return { size, content: file.createReadStream({ highWaterMark: CHUNK_BYTES }) };
    },
    close: async () => Promise.resolve(),
  };
}

interface Place {
  position: number;
  size: number;
}

type Entries = ReadonlyMap<string, Place | { target: string }>;

/**
 * `path`: the name of the archive in errors. `step`: runs the work on a few entries. Throws ExplainedError. The archive
 * closes the handle.
 */
export async function readTarArchive(
  path: string,
  handle: FileHandle,
  step: Step = async (work) => Promise.resolve(work()),
): Promise<ImageArchive> {
  const entries = await indexOf(path, handle, step);
  return {
    async read(name, maxBytes) {
      const place = find(entries, name);
      if (!place || place.size > maxBytes) return undefined;
      const { buffer } = await handle.read(Buffer.alloc(place.size), 0, place.size, place.position);
      return buffer;
    },
    async stream(name) {
      const place = find(entries, name);
      if (!place) throw missing(path, name);
      return Promise.resolve({ size: place.size, content: readRange(handle, place) });
    },
    close: async () => handle.close(),
  };
}

async function indexOf(path: string, handle: FileHandle, step: Step): Promise<Entries> {
  const entries = new Map<string, Place | { target: string }>();
  let count = 0;
  let nameBytes = 0;
  const scan = new TarScan({
    entry({ type, path, target, position, size }) {
      count += 1;
      if (count > MAX_FILES) throw new PullError('too_many_parts', `more than ${MAX_FILES} files`);
      nameBytes += path.length + target.length;
      if (nameBytes > MAX_NAME_BYTES)
        throw new PullError('too_many_parts', `names of more than ${MAX_NAME_BYTES} bytes`);
      const name = posix.normalize(path);
      if (type === 'file') entries.set(name, { position, size });
      // Old engines write the same layer of two images once.
      if (type === 'symlink') entries.set(name, { target: posix.join(posix.dirname(name), target) });
      if (type === 'link') entries.set(name, { target: posix.normalize(target) });
    },
    content: () => undefined,
  });
  try {
    for await (const chunk of readRange(handle, { position: 0, size: Infinity })) {
      for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
        await step(() => scan.push(chunk.subarray(at, at + PIECE_BYTES)));
      }
    }
    scan.end();
  } catch (cause) {
    if (!(cause instanceof PullError)) throw cause;
    const step = 'if it is compressed, uncompress it first';
    throw new ExplainedError(`${path} is no archive of an image: ${cause.message}; ${step}`, { cause });
  }
  return entries;
}

function find(entries: Entries, name: string): Place | undefined {
  let found = entries.get(posix.normalize(name));
  for (let links = 0; found && 'target' in found; links += 1) {
    found = links < MAX_SYMLINKS ? entries.get(found.target) : undefined;
  }
  return found;
}

async function* readRange(handle: FileHandle, { position, size }: Place): AsyncGenerator<Buffer> {
  for (let at = 0; at < size;) {
    const length = Math.min(CHUNK_BYTES, size - at);
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(length), 0, length, position + at);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}

function missing(path: string, name: string): ExplainedError {
  return new ExplainedError(`${path} is not complete: it has no file ${name}`);
}
