import { posix } from 'node:path';
import { GuestFileError, type FileStat, type GuestFiles } from '../../guest/guest.js';
import { kindOf, statIfThere } from '../../sandboxes/files/entry.js';
import type { ContextEntry } from '../context/entries.js';
import { isPattern, makeMatcher } from '../dockerfile/patterns.js';

/** The entries that the sources of an instruction are searched in. */
const MOST_ENTRIES = 100_000;
const MOST_PATH = 1_024;
/** Mounts of the kernel, which are no files of a disk. */
const KERNEL = ['/proc', '/sys', '/dev'];

/** An entry of a disk. `real`: its path in the sandbox, without links. */
export interface WalkedEntry {
  entry: ContextEntry;
  real: string;
}

export type Walked = Map<string, WalkedEntry>;

/**
 * Finds the files, directories and links below the source of a COPY, by their paths from the root. A link that the
 * source itself goes through is followed, and no other one. Throws with a message for people.
 */
export async function walkSource(
  files: GuestFiles,
  source: string,
  found: Walked,
  signal: AbortSignal,
): Promise<void> {
  const path = posix.normalize(`/${source}`).replaceAll(/^\/|\/$/g, '');
  const parts = path === '' ? [] : path.split('/');
  const first = parts.findIndex(isPattern);
  const fixed = first === -1 ? parts : parts.slice(0, first);
  const root = `/${fixed.join('/')}`;
  if (!(await statIfThere(files, root, { follow: true }))) throw missing(source);
  const real = await files.realPath(root);
  if (isOfKernel(real)) throw new Error(`"${source}" is of the kernel: it is on no disk`);
  const stat = await files.stat(real, { follow: false });
  await add(files, found, fixed.join('/'), real, stat);
  if (kindOf(stat) !== 'directory') return;
  const matches = first === -1 ? undefined : makeMatcher(path);
  await walk(files, found, { path: fixed.join('/'), real, matches, depth: parts.length, signal });
}

interface Directory {
  path: string;
  real: string;
  /** Undefined: everything below is wanted. */
  matches: ((path: string) => boolean) | undefined;
  /** The number of names in the pattern. */
  depth: number;
  signal: AbortSignal;
}

async function walk(files: GuestFiles, found: Walked, top: Directory): Promise<void> {
  const left: Directory[] = [top];
  for (let next = left.pop(); next; next = left.pop()) {
    const { path, real, matches, depth, signal } = next;
    for await (const stat of entriesOf(files, real)) {
      signal.throwIfAborted();
      const child = path === '' ? stat.name : `${path}/${stat.name}`;
      const childReal = posix.join(real, stat.name);
      if (isOfKernel(childReal)) continue;
      if (child.length > MOST_PATH) throw new Error(`"${child.slice(0, 80)}…" has more than ${MOST_PATH} characters`);
      const isMatch = matches?.(child) ?? true;
      await add(files, found, child, childReal, stat);
      if (kindOf(stat) !== 'directory') continue;
      // Above the last name of a pattern there may be a match below.
      if (isMatch) left.push({ path: child, real: childReal, matches: undefined, depth, signal });
      else if (child.split('/').length < depth) left.push({ path: child, real: childReal, matches, depth, signal });
    }
  }
}

async function* entriesOf(files: GuestFiles, directory: string): AsyncGenerator<FileStat & { name: string }> {
  const handle = await files.openDir(directory);
  try {
    for (;;) {
      const page = await files.readDir(handle);
      if (page.length === 0) return;
      for (const entry of page) {
        if (entry.name === '.' || entry.name === '..') continue;
        // The answer of a guest.
        if (entry.name === '' || entry.name.includes('/'))
          throw new Error(`${directory.slice(0, 200)} has an entry without a valid name`);
        yield entry;
      }
    }
  } finally {
    await files.close(handle);
  }
}

async function add(files: GuestFiles, found: Walked, path: string, real: string, stat: FileStat): Promise<void> {
  const kind = kindOf(stat);
  if (kind === 'other')
    throw new Error(`"/${path.slice(0, 200)}" is neither a file, a directory nor a link: remove it by RUN, or copy less`);
  if (found.size >= MOST_ENTRIES && !found.has(path))
    throw new Error(`the sources have more than ${MOST_ENTRIES} entries: copy less, or pack them into one file by RUN`);
  const content = kind === 'symlink' ? await readLink(files, real) : '';
  const mode = stat.mode & 0o7777;
  found.set(path, { entry: { path, type: kind, mode, size: 0, position: 0, content }, real });
}

async function readLink(files: GuestFiles, path: string): Promise<string> {
  try {
    return await files.readLink(path);
  } catch (error) {
    if (error instanceof GuestFileError) throw new Error(`the link ${path.slice(0, 200)} cannot be read`, { cause: error });
    throw error;
  }
}

function isOfKernel(path: string): boolean {
  return KERNEL.some((one) => path === one || path.startsWith(`${one}/`));
}

function missing(source: string): Error {
  return new Error(`"${source.slice(0, 200)}" is not on the disk that COPY takes it from: check the path and the stage`);
}
