import type { FileHandle } from 'node:fs/promises';
import { openMountSource } from '../../../engine/mount-sources.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import { isVolumeMount } from '../../../spec/mount-schema.js';
import type { VolumeStore } from '../../../volumes/storage/store.js';
import type { ImageUses } from '../disks/image-uses.js';
import type { FileServer } from './file-server.js';
import { shareTag } from '../boot/run-configuration.js';
import { folderOf, type FolderUses } from './folder-uses.js';

/** Each has a process of its own. The machine has 24 places of virtio devices, and disk images take 12 at most. */
export const MAX_FOLDERS = 6;

/** A directory or a file of a volume that a virtual machine gets. */
export interface OpenFolder {
  /** By which the sandbox finds it. */
  tag: string;
  isFile: boolean;
  isReadonly: boolean;
  /** The caller closes it. */
  handle: FileHandle;
}

interface FolderParts {
  volumes: VolumeStore;
  fileServer: FileServer | undefined;
  folderUses: FolderUses;
  imageUses: ImageUses;
}

/**
 * Opens the directories and files of the volumes that a run mounts, for the file servers of its supervisor. No symlink
 * is followed. Throws StartRefusedError.
 */
export async function openFolders(
  parts: FolderParts,
  { orgId, sandboxId, spec }: Run,
): Promise<OpenFolder[]> {
  const folders: OpenFolder[] = [];
  parts.folderUses.claims.release(sandboxId);
  try {
    for (const [index, mount] of spec.mounts.entries()) {
      if (!isVolumeMount(mount)) continue;
      const field = `mounts[${index}]`;
      if (!parts.fileServer)
        throw new StartRefusedError(
          `${field}: volumes cannot be mounted on this machine; "sandkeep doctor" shows the operator the reason`,
        );
      if (folders.length === MAX_FOLDERS)
        throw new StartRefusedError(`${field}: a virtual machine mounts at most ${MAX_FOLDERS} volumes`);
      const { handle, isDirectory } = await openMountSource(parts.volumes, orgId, mount, field);
      const isReadonly = mount.options?.readonly === true;
      folders.push({ tag: shareTag(index), isFile: !isDirectory, isReadonly, handle });
      const folder = await folderOf(handle);
      const user = isReadonly ? undefined : parts.imageUses.userIn(folder);
      if (user !== undefined)
        throw new StartRefusedError(
          `${field} cannot be mounted: the sandbox ${user} has a disk image in it: stop that sandbox, or mount it with "readonly"`,
        );
      parts.folderUses.add(sandboxId, { folder, isReadonly });
    }
    return folders;
  } catch (error) {
    await closeFolders(folders);
    throw error;
  }
}

async function closeFolders(folders: readonly OpenFolder[]): Promise<void> {
  for (const { handle } of folders) await handle.close();
}
