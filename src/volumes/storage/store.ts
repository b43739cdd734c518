import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readdir, rename, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDirectories } from '../../lib/directories.js';
import { measure } from './disk-usage.js';
import {
  openDescendant,
  openAt,
  openDirectoryAt,
  splitPath,
  ignoreMissing,
  VolumePathError,
} from './guest-path.js';
import { removeTree } from './remove-tree.js';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

/** What guests see of a volume. */
const DATA = 'data';
/** What is on its way in: on the file system of the data, out of the guests' sight and reach. */
const INCOMING = 'incoming';

/**
 * Where the data of volumes is: `<root>/<org id>/<volume id>/data`. Several hosts that serve the same volumes need one
 * file system there. Guests write below `data` as any user while the service works there, so nothing below it is ever
 * reached by a path: see `beneath.ts`.
 */
export class VolumeStore {
  constructor(private readonly root: string) {}

  /** Makes the root, which nobody but this user may enter: below it everybody may write. */
  async prepare(): Promise<void> {
    makeDirectories(this.root, 0o700);
    await chmod(this.root, 0o700);
  }

  /** The directory of a volume, made when missing, in which any guest user may write. */
  async ensure(orgId: string, volumeId: string): Promise<string> {
    const volume = this.pathOf(orgId, volumeId);
    const data = join(volume, DATA);
    const top = await open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(ignoreMissing);
    if (top) {
      await top.close();
      return data;
    }
    // Comes into being whole: with its mode, and without ever taking the place of one that has data.
    const made = join(this.root, orgId, `.new-${randomUUID()}`);
    await mkdir(join(made, DATA), { recursive: true, mode: 0o700 });
    await mkdir(join(made, INCOMING), { mode: 0o700 });
    await chmod(join(made, DATA), 0o777);
    try {
      await rename(made, volume);
    } catch (error) {
      await rm(made, { recursive: true });
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
    }
    return data;
  }

  /**
   * Opens what is at `path` in the volume, and never leaves it: each part of the path is opened in the one before,
   * without following symlinks, so a guest that swaps a directory for a symlink wins nothing. `flags`: as of open(2),
   * reading unless said; what the guest made may be a pipe or a device, so openEntry (fstat) before reading. The caller closes
   * it. Throws VolumePathError, and errors of open(2).
   */
  async openBeneath(orgId: string, volumeId: string, path: string, flags = O_RDONLY): Promise<FileHandle> {
    const names = splitPath(path);
    const name = names.pop();
    const parent = await openDescendant(await this.openTop(orgId, volumeId), names);
    if (name === undefined) return parent;
    try {
      return await openAt(parent, name, flags);
    } finally {
      await parent.close();
    }
  }

  /**
   * Opens the directory that holds what `path` names, to create, rename or remove it there. The caller closes `parent`.
   * `name` is undefined for the top of the volume, which is in no directory that belongs to it; `parent` is the top then.
   * `make`: directories that are missing on the way are made. Throws VolumePathError.
   */
  async openParent(
    orgId: string,
    volumeId: string,
    path: string,
    options: { make?: boolean } = {},
  ): Promise<{ parent: FileHandle; name: string | undefined }> {
    const names = splitPath(path);
    const name = names.pop();
    return { parent: await openDescendant(await this.openTop(orgId, volumeId), names, options), name };
  }

  /** Makes a directory and those it is in, where they are missing. Throws VolumePathError. */
  async makeDirectory(orgId: string, volumeId: string, path: string): Promise<void> {
    const names = splitPath(path);
    const made = await openDescendant(await this.openTop(orgId, volumeId), names, { make: true });
    await made.close();
  }

  /** Opens the place for what is on its way into the volume, on the same file system. The caller closes it. */
  async openIncoming(orgId: string, volumeId: string): Promise<FileHandle> {
    await this.ensure(orgId, volumeId);
    return open(join(this.pathOf(orgId, volumeId), INCOMING), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  /** Removes the data of a volume; none is no error. What a crash cuts short is done by calling it again. */
  async remove(orgId: string, volumeId: string): Promise<void> {
    const org = await open(join(this.root, orgId), O_RDONLY | O_DIRECTORY).catch(ignoreMissing);
    if (!org) return;
    try {
      await removeTree(org, volumeId);
    } finally {
      await org.close();
    }
  }

  /** KiB on the disk; undefined when nothing was ever put into the volume. */
  measure(orgId: string, volumeId: string, signal: AbortSignal): Promise<number | undefined> {
    return measure(join(this.pathOf(orgId, volumeId), DATA), signal);
  }

  /** Every volume that has a directory here. */
  async list(): Promise<{ orgId: string; volumeId: string }[]> {
    const found: { orgId: string; volumeId: string }[] = [];
    for (const orgId of await directoriesIn(this.root)) {
      for (const volumeId of await directoriesIn(join(this.root, orgId))) found.push({ orgId, volumeId });
    }
    return found;
  }

  private async openTop(orgId: string, volumeId: string): Promise<FileHandle> {
    if (process.platform !== 'linux') {
      throw new VolumePathError('unsupported', 'the files of volumes are served on Linux only');
    }
    await this.ensure(orgId, volumeId);
    const volume = await open(this.pathOf(orgId, volumeId), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    try {
      return await openDirectoryAt(volume, DATA);
    } finally {
      await volume.close();
    }
  }

  private pathOf(orgId: string, volumeId: string): string {
    return join(this.root, orgId, volumeId);
  }
}

/** The names of directories that are ids: what an operator puts beside them is none of ours. */
async function directoriesIn(path: string): Promise<string[]> {
  const entries = (await readdir(path, { withFileTypes: true }).catch(ignoreMissing)) ?? [];
  return entries
    .filter((entry) => entry.isDirectory() && /^[0-9a-f-]{36}$/.test(entry.name))
    .map(({ name }) => name);
}
