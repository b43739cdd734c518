import type { ContainerInspectInfo } from 'dockerode';
import { constants, type Stats } from 'node:fs';
import { open, readlink, type FileHandle } from 'node:fs/promises';
import { posix } from 'node:path';
import { StartRefusedError } from '../../../engine/runtime.js';
import { textOfName } from '../../../lib/byte-names.js';
import { fdPath, openForStat, VolumePathError } from '../../../volumes/storage/guest-path.js';
import type { PathStat } from '../archive.js';
import { snapshotMounts, type ContainerdPlace } from '../containerd.js';
import { O_PATH } from '../../../volumes/storage/guest-path.js';

/** As in the engine. */
const LINKS_FOLLOWED = 255;
/**
 * Each directory takes a descriptor of the service for each layer that has it. 255 links of 2,000 directories each
 * would use up all of them; eight directories in 125 layers stay below this.
 */
const MOST_HANDLES = 1_000;
/**
 * The parts of paths of one look. Those that do not exist take no descriptor, but still time of the event loop. Links
 * can name half a million of them, and each one has the path before it.
 */
const MOST_STEPS = 8_000;
/** As in the kernel, in characters. */
const LONGEST_PATH = 4_096;

type Entry =
  | { type: 'directory'; stats: Stats; parts: readonly FileHandle[] }
  | { type: 'symlink'; stats: Stats; text: string }
  | { type: 'file' | 'other'; stats: Stats };

/**
 * The disk of a container without its mounts, read in the directories that overlayfs unites. It opens no file, whatever
 * the guest made of its paths.
 *
 * It cannot see that a directory is opaque, so it may show an entry of a lower directory where the disk has none. An
 * entry that the disk has is always that of the topmost directory, and never missed.
 */
export class DiskView {
  private readonly handles: FileHandle[] = [];
  private readonly known = new Map<string, Promise<Entry | undefined>>();
  private steps = 0;

  private constructor(private readonly mostHandles: number) {}

  /** `directories`: the topmost first. */
  static async open(directories: readonly string[], mostHandles = MOST_HANDLES): Promise<DiskView> {
    const view = new DiskView(mostHandles);
    try {
      for (const directory of directories)
        view.handles.push(await open(directory, O_PATH | constants.O_DIRECTORY));
      const [top] = view.handles;
      if (!top) throw new Error('a disk has at least one directory');
      const root = { type: 'directory' as const, stats: await top.stat(), parts: [...view.handles] };
      view.known.set('/', Promise.resolve(root));
      return view;
    } catch (error) {
      await view.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.handles.splice(0).map((handle) => handle.close()));
  }

  /**
   * As the engine answers it: links on the way are followed, and a link at the end has the path behind all links as its
   * target. Paths are texts of names (`textOfName`), also the target.
   */
  async stat(path: string): Promise<PathStat | undefined> {
    const place = posix.join(await this.follow(posix.dirname(path)), posix.basename(path));
    const entry = await this.entryAt(place);
    if (!entry) return undefined;
    const { mode, size } = entry.stats;
    const target = entry.type === 'symlink' ? await this.follow(place) : '';
    return { type: entry.type, mode: mode & 0o777, size, target };
  }

  /** The path behind every link, also where the disk has nothing. With too many links it ends at one. */
  private async follow(path: string): Promise<string> {
    let done = '/';
    let links = 0;
    const parts = partsOf(path);
    while (parts.length > 0) {
      const part = parts.shift()!;
      const next = posix.join(done, part);
      this.steps += 1;
      if (this.steps + parts.length > MOST_STEPS || next.length > LONGEST_PATH) throw tooDeep();
      const entry = part === '..' ? undefined : await this.entryAt(next);
      if (entry?.type !== 'symlink' || links === LINKS_FOLLOWED) done = next;
      else {
        links += 1;
        parts.unshift(...partsOf(entry.text));
        if (entry.text.startsWith('/')) done = '/';
      }
    }
    return done;
  }

  /** `path` has no link on its way. */
  private async entryAt(path: string): Promise<Entry | undefined> {
    const known = this.known.get(path) ?? this.readEntry(path);
    this.known.set(path, known);
    return known;
  }

  private async readEntry(path: string): Promise<Entry | undefined> {
    const parent = await this.entryAt(posix.dirname(path));
    if (parent?.type !== 'directory') return undefined;
    const name = posix.basename(path);
    let top: Stats | undefined;
    const parts: FileHandle[] = [];
    for (const directory of parent.parts) {
      const found = await openForStat(directory, name).catch(ignoreMissing);
      if (!found) continue;
      const { handle, stats } = found;
      if (stats.isDirectory()) {
        this.handles.push(handle);
        if (this.handles.length > this.mostHandles) throw tooDeep();
        top ??= stats;
        parts.push(handle);
        continue;
      }
      await handle.close();
      if (isWhiteout(stats)) break;
      if (top) break;
      if (stats.isSymbolicLink()) return { type: 'symlink', stats, text: await linkText(directory, name) };
      return { type: stats.isFile() ? 'file' : 'other', stats };
    }
    return top && { type: 'directory', stats: top, parts };
  }
}

/** Undefined: the service does not see where the engine keeps the disk, or not as directories of overlayfs. */
export async function openDiskView(
  { Id, Driver, GraphDriver }: ContainerInspectInfo,
  containerd: ContainerdPlace | undefined,
): Promise<DiskView | undefined> {
  try {
    if (Driver === 'overlay2') {
      const { UpperDir, LowerDir } = GraphDriver.Data as Partial<Record<string, string>>;
      if (UpperDir === undefined || LowerDir === undefined) return undefined;
      return await DiskView.open([UpperDir, ...LowerDir.split(':')]);
    }
    if (Driver !== 'overlayfs' || !containerd) return undefined;
    const [mount, ...others] = (await snapshotMounts(containerd, Driver, Id)) ?? [];
    if (mount?.type !== 'overlay' || others.length > 0) return undefined;
    const option = (name: string) =>
      mount.options.find((text) => text.startsWith(`${name}=`))?.slice(name.length + 1) ?? '';
    return await DiskView.open([option('upperdir'), ...option('lowerdir').split(':')]);
  } catch (error) {
    // The engine may have its files where the service does not see them.
    if (NOT_SEEN.has((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
}

/** The names of a guest are bytes. */
async function linkText(directory: FileHandle, name: string): Promise<string> {
  return textOfName(await readlink(fdPath(directory, name), { encoding: 'buffer' }));
}

function tooDeep(): StartRefusedError {
  return new StartRefusedError(
    'a path of a mount leads through too many links and directories of the sandbox: create the sandbox again, and leave the path as it is',
  );
}

const NOT_SEEN = new Set(['ENOENT', 'EACCES', 'EPERM']);

function partsOf(path: string): string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.');
}

/** Overlayfs notes a removed entry of a lower directory as such a device. */
function isWhiteout(stats: Stats): boolean {
  return stats.isCharacterDevice() && stats.rdev === 0;
}

/** A link of a guest may have a name of any length. */
function ignoreMissing(error: unknown): undefined {
  if (error instanceof VolumePathError) return;
  if ((error as NodeJS.ErrnoException).code !== 'ENAMETOOLONG') throw error;
}
