import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readdir, rename, rm, rmdir, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDirectories } from '../../lib/directories.js';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { CapLedger } from './cap-ledger.js';
import { measure } from './disk-usage.js';
import { DATA, INCOMING, MOUNT_POINT } from './disks/disk-image.js';
import { VolumeDisks } from './disks/volume-disks.js';
import { ignoreMissing, openAt, openDescendant, splitPath, VolumePathError } from './guest-path.js';
import { removeTree } from './remove-tree.js';
import { packTree, syncFileSystem, unpackTree } from './tar-program.js';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

/** Half of the threads that Node has for files. */
export const FILE_PIECES = { total: 2, each: 1 };

/**
 * Data is in `<root>/<org id>/<volume id>/data`; that of a volume with a disk is in `disk/data`, where the disk is
 * mounted. Any guest user writes there, so the service opens nothing below it by path.
 */
export class VolumeStore {
  readonly pieces = new SlotQueue(FILE_PIECES);
  readonly caps = new CapLedger((orgId, volumeId, signal) => this.measure(orgId, volumeId, signal));

  /** Whether volumes with a cap get disks of their own, which hold everybody to it. The runtime finds out. */
  makesDisks = false;
  private readonly disks: VolumeDisks;

  constructor(readonly root: string) {
    this.disks = new VolumeDisks(root);
  }

  /** Only this user may enter the root: everybody may write below it. */
  async prepare(): Promise<void> {
    makeDirectories(this.root, 0o700);
    await chmod(this.root, 0o700);
    await this.disks.adopt();
  }

  async close(): Promise<void> {
    await this.disks.close();
  }

  /** Before the first write, so that the volume gets its disk or lets it grow. Throws VolumeDiskError. */
  async holdToCap(
    orgId: string,
    volumeId: string,
    capGib: number | null | undefined,
    { isStart = false, signal }: { isStart?: boolean; signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    if (!this.makesDisks || capGib == null) return;
    const volume = this.pathOf(orgId, volumeId);
    if ((await this.disks.gibOf(volume)) === undefined) await this.makeDirectories(orgId, volumeId);
    await this.disks.hold(volume, capGib, { isStart, signal });
  }

  /** Undefined: the volume has no disk yet. */
  async diskGib(orgId: string, volumeId: string): Promise<number | undefined> {
    return this.disks.gibOf(this.pathOf(orgId, volumeId));
  }

  /** For a copy of all data: `data` in this directory, until `close`. Undefined: the volume never had data. */
  async holdData(
    orgId: string,
    volumeId: string,
  ): Promise<{ directory: string; close: () => Promise<void> } | undefined> {
    const volume = this.pathOf(orgId, volumeId);
    const disk = await this.disks.open(volume, DATA);
    if (disk) return { directory: join(volume, MOUNT_POINT), close: async () => disk.close() };
    const data = await open(join(volume, DATA), O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(ignoreMissing);
    return data && { directory: volume, close: async () => data.close() };
  }

  /**
   * Replaces everything in the volume `to`, which nobody uses yet, by the files of `from`, with owners, modes, links
   * and holes. Others may write to `from` meanwhile: tar(1) follows no link of theirs. `onBytes` may throw. The files
   * are on the disk when it resolves.
   */
  async fill(
    orgId: string,
    { from, to, capGib }: { from: string; to: string; capGib: number | null },
    { onBytes, signal }: { onBytes: (bytes: number) => void; signal: AbortSignal },
  ): Promise<void> {
    // A copy that was interrupted left a part.
    await this.remove(orgId, to);
    const source = await this.holdData(orgId, from);
    if (!source) return;
    try {
      await this.makeDirectories(orgId, to);
      await this.holdToCap(orgId, to, capGib, { signal });
      const target = (await this.holdData(orgId, to))!;
      try {
        await rmdir(join(target.directory, DATA));
        const packed = packTree(source.directory, DATA);
        await unpackTree(target.directory, DATA, counted(packed.content, onBytes, signal));
        await packed.warnings();
        await syncFileSystem(target.directory);
      } finally {
        await target.close();
      }
    } finally {
      await source.close();
    }
  }

  /** Writable for any guest user. */
  async ensure(orgId: string, volumeId: string): Promise<string> {
    const volume = this.pathOf(orgId, volumeId);
    const disk = await this.disks.open(volume, DATA);
    if (!disk) return this.makeDirectories(orgId, volumeId);
    await disk.close();
    return join(volume, MOUNT_POINT, DATA);
  }

  private async makeDirectories(orgId: string, volumeId: string): Promise<string> {
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
    return this.openPart(orgId, volumeId, INCOMING);
  }

  async remove(orgId: string, volumeId: string): Promise<void> {
    await this.disks.detach(this.pathOf(orgId, volumeId));
    const org = await open(join(this.root, orgId), O_RDONLY | O_DIRECTORY).catch(ignoreMissing);
    if (!org) return;
    try {
      await removeTree(org, volumeId, (piece) => this.pieces.run(orgId, piece));
    } finally {
      await org.close();
    }
  }

  /** In KiB; undefined for a volume that never had data. */
  async measure(orgId: string, volumeId: string, signal: AbortSignal): Promise<number | undefined> {
    const volume = this.pathOf(orgId, volumeId);
    return (await this.disks.usedKib(volume, DATA)) ?? measure(join(volume, DATA), signal);
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
    return this.openPart(orgId, volumeId, DATA);
  }

  private async openPart(orgId: string, volumeId: string, part: string): Promise<FileHandle> {
    const volume = this.pathOf(orgId, volumeId);
    for (let round = 0; ; round += 1) {
      const onDisk = await this.disks.open(volume, part);
      if (onDisk) return onDisk;
      await this.makeDirectories(orgId, volumeId);
      const found = await open(join(volume, part), O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(ignoreMissing);
      if (found) return found;
      // The volume got a disk meanwhile.
      if (round > 0) throw new Error(`the volume ${volumeId} has neither a disk nor the directory ${part}`);
    }
  }

  private pathOf(orgId: string, volumeId: string): string {
    return join(this.root, orgId, volumeId);
  }
}

async function* counted(
  content: AsyncIterable<Buffer>,
  onBytes: (bytes: number) => void,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for await (const chunk of content) {
    signal.throwIfAborted();
    onBytes(chunk.length);
    yield chunk;
  }
}

/** Other names belong to the operator. */
async function directoriesIn(path: string): Promise<string[]> {
  const entries = (await readdir(path, { withFileTypes: true }).catch(ignoreMissing)) ?? [];
  return entries
    .filter((entry) => entry.isDirectory() && /^[0-9a-f-]{36}$/.test(entry.name))
    .map(({ name }) => name);
}
