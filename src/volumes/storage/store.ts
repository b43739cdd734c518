import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readdir, rename, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDirectories } from '../../lib/directories.js';
import { FairSlots } from '../../lib/fair-slots.js';
import { CapLedger } from './cap-ledger.js';
import { measure } from './disk-usage.js';
import {
  ignoreMissing,
  openAt,
  openDescendant,
  openDirectoryAt,
  splitPath,
  VolumePathError,
} from './guest-path.js';
import { removeTree } from './remove-tree.js';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

const DATA = 'data';
/** On the same file system, invisible to guests. */
const INCOMING = 'incoming';
/** Half of the threads that Node has for files. */
export const FILE_PIECES = { total: 2, each: 1 };

/**
 * Data is in `<root>/<org id>/<volume id>/data`. Any guest user writes there, so the service opens nothing below it by
 * path.
 */
export class VolumeStore {
  readonly pieces = new FairSlots(FILE_PIECES);
  readonly caps = new CapLedger((orgId, volumeId, signal) => this.measure(orgId, volumeId, signal));

  constructor(readonly root: string) {}

  /** Only this user may enter the root: everybody may write below it. */
  async prepare(): Promise<void> {
    makeDirectories(this.root, 0o700);
    await chmod(this.root, 0o700);
  }

  /** Writable for any guest user. */
  async ensure(orgId: string, volumeId: string): Promise<string> {
    const volume = this.pathOf(orgId, volumeId);
    const data = join(volume, DATA);
    const top = await open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(ignoreMissing);
    if (top) {
      await top.close();
      return data;
    }
    // A rename creates it complete, and cannot replace one with data.
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

  /** Never follows a symlink. The result may be a pipe or a device. The caller closes it. Throws VolumePathError. */
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

  /** `name` is undefined for the top of the volume. The caller closes `parent`. Throws VolumePathError. */
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

  async makeDirectory(orgId: string, volumeId: string, path: string): Promise<void> {
    const names = splitPath(path);
    const made = await openDescendant(await this.openTop(orgId, volumeId), names, { make: true });
    await made.close();
  }

  async openIncoming(orgId: string, volumeId: string): Promise<FileHandle> {
    await this.ensure(orgId, volumeId);
    return open(join(this.pathOf(orgId, volumeId), INCOMING), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  async remove(orgId: string, volumeId: string): Promise<void> {
    const org = await open(join(this.root, orgId), O_RDONLY | O_DIRECTORY).catch(ignoreMissing);
    if (!org) return;
    try {
      await removeTree(org, volumeId, (piece) => this.pieces.run(orgId, piece));
    } finally {
      await org.close();
    }
  }

  /** In KiB; undefined for a volume that never had data. */
  measure(orgId: string, volumeId: string, signal: AbortSignal): Promise<number | undefined> {
    return measure(join(this.pathOf(orgId, volumeId), DATA), signal);
  }

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

/** Other names belong to the operator. */
async function directoriesIn(path: string): Promise<string[]> {
  const entries = (await readdir(path, { withFileTypes: true }).catch(ignoreMissing)) ?? [];
  return entries
    .filter((entry) => entry.isDirectory() && /^[0-9a-f-]{36}$/.test(entry.name))
    .map(({ name }) => name);
}
