import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { StartRefusedError } from '../../../engine/runtime.js';
import type { DiskImageMount } from '../../../spec/run-spec.js';
import { fdPath, O_PATH, openForStat, VolumePathError } from '../../../volumes/storage/guest-path.js';
import type { VolumeStore } from '../../../volumes/storage/store.js';
import { folderOf, foldersAbove } from '../volumes/folder-uses.js';
import { fileOf, type ImageUse } from './image-uses.js';
import { explainQcow2 } from './qcow2-header.js';
import { explainVmdk } from './vmdk-header.js';

const SECTOR_BYTES = 512;
/** The machine has 24 places of virtio devices. */
export const MAX_DISK_IMAGES = 12;

type ImageVolumes = Pick<VolumeStore, 'openParent' | 'openBeneath'>;

/** Returns why the file may not be used now. */
export type ReserveImage = (use: ImageUse) => string | undefined;

/**
 * Opens the file of a disk image in its volume, for a monitor that gets the descriptor and the format. No symlink is
 * followed, and the file names no other file. The monitor opens the header again. Until then nobody changes it:
 * `reserve` keeps other sandboxes from it, and from writing to its directories; uploads replace files instead of
 * changing them. The caller closes the file. `field`: the mount in the request. Throws
 * StartRefusedError.
 */
export async function openDiskImage(
  volumes: ImageVolumes,
  orgId: string,
  mount: DiskImageMount,
  { field, reserve }: { field: string; reserve: ReserveImage },
): Promise<FileHandle> {
  const refusal = (reason: string) =>
    new StartRefusedError(`${field}: the disk image ${mount.host} cannot be used: ${reason}`);
  const found = await openFile(volumes, orgId, mount).catch((error: unknown) => {
    throw error instanceof VolumePathError ? refusal(error.message) : error;
  });
  if (!found) throw refusal('it is no file');
  const { file, folders } = found;
  try {
    const isReadonly = mount.options?.readonly === true;
    const reason =
      reserve({ file: fileOf(await file.stat({ bigint: true })), isReadonly, folders }) ??
      (await explain(file, mount.format));
    if (reason !== undefined) throw refusal(reason);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Undefined: it is something else, which is not opened, because a device or a pipe may do something then. */
async function openFile(
  volumes: ImageVolumes,
  orgId: string,
  { volumeId, host, options }: DiskImageMount,
): Promise<{ file: FileHandle; folders: readonly string[] } | undefined> {
  const { parent, name } = await volumes.openParent(orgId, volumeId, host);
  try {
    if (name === undefined) return undefined;
    const { handle, stats } = await openForStat(parent, name);
    try {
      if (!stats.isFile()) return undefined;
      // A sandbox that mounts the folder of another name could change the header before the monitor opens it.
      if (stats.nlink > 1) throw new VolumePathError('invalid', 'it has several names (hard links): copy it');
      const folders = await foldersAbove(parent, await topOf(volumes, orgId, volumeId));
      const flags = options?.readonly === true ? constants.O_RDONLY : constants.O_RDWR;
      return { file: await open(fdPath(handle), flags), folders };
    } finally {
      await handle.close();
    }
  } finally {
    await parent.close();
  }
}

async function topOf(volumes: ImageVolumes, orgId: string, volumeId: string): Promise<string> {
  const top = await volumes.openBeneath(orgId, volumeId, '/', O_PATH);
  try {
    return await folderOf(top);
  } finally {
    await top.close();
  }
}

/** Undefined: the file is a disk of the format, and the disk is in this file alone. */
async function explain(file: FileHandle, format: DiskImageMount['format']): Promise<string | undefined> {
  const { size } = await file.stat();
  const read = async (position: number, length: number) => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
    return buffer.subarray(0, bytesRead);
  };
  switch (format) {
    case 'qcow2':
      return explainQcow2(read);
    case 'vmdk':
      return explainVmdk(read, size);
    case 'raw':
      if (size > 0 && size % SECTOR_BYTES === 0) return undefined;
      return `its size must be a multiple of ${SECTOR_BYTES} bytes`;
  }
}
