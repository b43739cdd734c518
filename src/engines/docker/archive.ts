import type Docker from 'dockerode';
import { posix } from 'node:path';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { extract, pack, type Headers } from 'tar-stream';
import { NOT_FOUND, SERVER_ERROR, statusOf } from './errors.js';

export type Entry =
  | { name: string; type: 'file'; mode: number; content: Buffer; uid?: number; gid?: number }
  | { name: string; type: 'directory'; mode: number; uid?: number; gid?: number }
  | { name: string; type: 'symlink'; target: string };

export interface PathStat {
  type: 'file' | 'directory' | 'symlink' | 'other';
  mode: number;
  size: number;
  target: string;
}

/** The type bits of Go's `os.FileMode`. */
const TYPE_BITS = 0x8f280000;
const DIRECTORY_BIT = 0x80000000;
const SYMLINK_BIT = 0x08000000;
/** As in the kernel. */
const LINKS_FOLLOWED = 40;

export async function writeEntries(container: Docker.Container, entries: readonly Entry[]): Promise<void> {
  const archive = pack();
  for (const entry of entries) {
    const header: Headers = { name: entry.name, type: entry.type, uid: 0, gid: 0 };
    switch (entry.type) {
      case 'file':
        archive.entry(
          { ...header, mode: entry.mode, uid: entry.uid ?? 0, gid: entry.gid ?? 0 },
          entry.content,
        );
        break;
      case 'directory':
        archive.entry({ ...header, mode: entry.mode, uid: entry.uid ?? 0, gid: entry.gid ?? 0 });
        break;
      case 'symlink':
        archive.entry({ ...header, linkname: entry.target });
        break;
    }
  }
  archive.finalize();
  // Refuses to replace a directory with a file, or a file with a directory.
  await container.putArchive(await buffer(archive), { path: '/', noOverwriteDirNonDir: 'true' });
}

/** `fails`: statuses that are an error here. */
export async function statPath(
  container: Docker.Container,
  path: string,
  { fails = [] }: { fails?: readonly number[] } = {},
): Promise<PathStat | undefined> {
  try {
    const answer = (await container.infoArchive({ path })) as {
      headers: Record<string, string | undefined>;
      resume(): void;
    };
    answer.resume();
    const text = Buffer.from(answer.headers['x-docker-container-path-stat'] ?? '', 'base64').toString();
    const { mode, size, linkTarget } = JSON.parse(text) as { mode: number; size: number; linkTarget: string };
    return { type: typeOf(mode), mode: mode & 0o777, size, target: linkTarget };
  } catch (error) {
    // The engine answers 500 when a parent is not a directory. Any other cause fails the later write.
    const status = statusOf(error) ?? 0;
    if ([NOT_FOUND, SERVER_ERROR].includes(status) && !fails.includes(status)) return undefined;
    throw error;
  }
}

/** The path behind the links at the end of `path`. Undefined: there are too many. */
export async function followedPath(container: Docker.Container, path: string): Promise<string | undefined> {
  let file = path;
  for (let links = 0; links < LINKS_FOLLOWED; links += 1) {
    const found = await statPath(container, file);
    if (found?.type !== 'symlink') return file;
    file = posix.resolve(posix.dirname(file), found.target);
  }
  return undefined;
}

function typeOf(mode: number): PathStat['type'] {
  if ((mode & DIRECTORY_BIT) !== 0) return 'directory';
  if ((mode & SYMLINK_BIT) !== 0) return 'symlink';
  return (mode & TYPE_BITS) === 0 ? 'file' : 'other';
}

/** Undefined: it is no file, or has more bytes than `most`. */
export async function readFile(
  container: Docker.Container,
  path: string,
  most: number,
): Promise<Extract<Entry, { type: 'file' }> | undefined> {
  const archive = extract();
  const files: Extract<Entry, { type: 'file' }>[] = [];
  archive.on('entry', ({ type, size = 0, mode = 0o644, uid = 0, gid = 0 }: Headers, content, next) => {
    if (type !== 'file' || size > most) return void archive.destroy();
    const chunks: Buffer[] = [];
    content.on('data', (chunk: Buffer) => chunks.push(chunk));
    content.on('end', () => {
      files.push({ name: path, type: 'file', mode, uid, gid, content: Buffer.concat(chunks) });
      next();
    });
  });
  const source = await container.getArchive({ path });
  await new Promise<void>((resolve, reject) => {
    source.on('error', reject);
    archive.on('error', reject).on('finish', resolve).on('close', resolve);
    source.pipe(archive);
  });
  (source as Readable).destroy();
  return files[0];
}
