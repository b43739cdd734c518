import { posix } from 'node:path';
import type { FileStat, GuestFiles } from '../../guest/guest.js';
import { kindOf, statIfThere } from '../../sandboxes/files/entry.js';
import type { ContextEntry } from '../context/entries.js';
import { isPattern, makeMatcher } from '../dockerfile/patterns.js';
import type { Turn } from './turns.js';

/** The entries that the sources of an instruction are searched in. */
const MOST_ENTRIES = 100_000;
/** The paths and links of the entries are in memory. */
const MOST_CHARS = 16 * 1024 * 1024;
const MOST_PATH = 1_024;
/** Mounts of the kernel, which are no files of a disk. */
const KERNEL = ['/proc', '/sys', '/dev'];

/** The names in a directory that a source leads to. */
interface Directory {
  path: string;
  real: string;
  /** Undefined: everything below is wanted. */
  matches: ((path: string) => boolean) | undefined;
  /** The number of names in the pattern. */
  depth: number;
}

/**
 * Finds the files, directories and links below the sources of a COPY. The guest resolves each path, so that a link
 * leads to files of its own disk alone. Methods throw with a message for people.
 */
export class SourceWalk {
  /** By their paths from the root, as the sources name them. */
  readonly entries = new Map<string, ContextEntry>();
  /** The paths of entries in the sandbox, without links. */
  private readonly realPaths = new Map<ContextEntry, string>();
  private chars = 0;
  private comparisons = 0;

  constructor(
    private readonly files: GuestFiles,
    private readonly signal: AbortSignal,
    private readonly turn: Turn,
  ) {}

  /** A link that the source itself goes through is followed, and no other one. */
  async add(source: string): Promise<void> {
    const { files } = this;
    if (source.split('/').includes('..'))
      throw new Error(`"${source.slice(0, 200)}" leads out of the disk that COPY takes it from`);
    const path = posix.normalize(`/${source}`).replaceAll(/^\/|\/$/g, '');
    const parts = path === '' ? [] : path.split('/');
    const first = parts.findIndex(isPattern);
    const fixed = first === -1 ? parts : parts.slice(0, first);
    const matches = first === -1 ? undefined : makeMatcher(path);
    const root = `/${fixed.join('/')}`;
    if (!(await statIfThere(files, root, { follow: true })))
      throw new Error(
        `"${source.slice(0, 200)}" is not on the disk that COPY takes it from: check the path and the stage`,
      );
    const real = await files.realPath(root);
    if (isOfKernel(real)) throw new Error(`"${source.slice(0, 200)}" is of the kernel: it is on no disk`);
    const stat = await files.stat(real, { follow: false });
    await this.found(fixed.join('/'), real, stat);
    if (kindOf(stat) !== 'directory') return;
    const left: Directory[] = [{ path: fixed.join('/'), real, matches, depth: parts.length }];
    for (let next = left.pop(); next; next = left.pop()) await this.walk(next, left);
  }

  realPathOf(entry: ContextEntry): string {
    return this.realPaths.get(entry)!;
  }

  private async walk({ path, real, matches, depth }: Directory, left: Directory[]): Promise<void> {
    for await (const stat of entriesOf(this.files, real)) {
      this.signal.throwIfAborted();
      const child = path === '' ? stat.name : `${path}/${stat.name}`;
      const childReal = posix.join(real, stat.name);
      if (isOfKernel(childReal)) continue;
      const isMatch = matches === undefined || (await this.compared(child, matches));
      const isDirectory = kindOf(stat) === 'directory';
      // Above the last name of a pattern there may be a match below.
      const leads = isDirectory && child.split('/').length < depth;
      if (!isMatch && !leads) continue;
      await this.found(child, childReal, stat);
      if (isDirectory)
        left.push({ path: child, real: childReal, matches: isMatch ? undefined : matches, depth });
    }
  }

  /** The names and the pattern are of a caller, and a comparison may take a part of a millisecond. */
  private async compared(path: string, matches: (path: string) => boolean): Promise<boolean> {
    this.comparisons += 1;
    if (this.comparisons > MOST_ENTRIES)
      throw new Error(`patterns are compared with more than ${MOST_ENTRIES} names: copy a directory instead`);
    return this.turn(() => matches(path));
  }

  private async found(path: string, real: string, stat: FileStat): Promise<void> {
    const kind = kindOf(stat);
    if (kind === 'other')
      throw new Error(
        `"/${path.slice(0, 200)}" is neither a file, a directory nor a link: remove it by RUN, or copy less`,
      );
    const content = kind === 'symlink' ? await this.files.readLink(real) : '';
    if (path.length > MOST_PATH || content.length > MOST_PATH)
      throw new Error(`"/${path.slice(0, 80)}…" or its link has more than ${MOST_PATH} characters`);
    this.chars += path.length + real.length + content.length;
    if (this.entries.size >= MOST_ENTRIES || this.chars > MOST_CHARS)
      throw new Error(
        `the sources have more than ${MOST_ENTRIES} entries, or long paths: copy less, or pack them into one file by RUN`,
      );
    const size = kind === 'file' ? Number(stat.size) : 0;
    const entry = { path, type: kind, mode: stat.mode & 0o7777, size, position: 0, content };
    this.entries.set(path, entry);
    this.realPaths.set(entry, real);
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

function isOfKernel(path: string): boolean {
  return KERNEL.some((one) => path === one || path.startsWith(`${one}/`));
}
