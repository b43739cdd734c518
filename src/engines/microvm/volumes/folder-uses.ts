import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { fdPath, MAX_NAMES, O_PATH } from '../../../volumes/storage/guest-path.js';
import { fileOf } from '../disks/image-uses.js';
import { RunClaims } from '../run-claims.js';

/** A directory or a file of a volume that a virtual machine mounts. */
export interface FolderUse {
  /** Its file system and its number there, as paths may change. */
  folder: string;
  isReadonly: boolean;
}

/** The directories and files that the virtual machines that run mount. */
export class FolderUses {
  readonly claims = new RunClaims<readonly FolderUse[]>();

  /** A sandbox that writes to one of these directories and files. */
  writerOf(folders: readonly string[]): string | undefined {
    for (const [holder, uses] of this.claims.entries())
      if (uses.some(({ folder, isReadonly }) => !isReadonly && folders.includes(folder))) return holder;
    return undefined;
  }

  add(sandboxId: string, use: FolderUse): void {
    this.claims.claim(sandboxId, [...this.of(sandboxId), use]);
  }

  of(sandboxId: string): readonly FolderUse[] {
    return this.claims.entries().find(([holder]) => holder === sandboxId)?.[1] ?? [];
  }
}

export async function folderOf(handle: FileHandle): Promise<string> {
  return fileOf(await handle.stat({ bigint: true }));
}

/** A directory and those above it, up to the top of its volume. `start` stays open. */
export async function foldersAbove(start: FileHandle, top: string): Promise<string[]> {
  const folders = [await folderOf(start)];
  let folder = start;
  try {
    while (folders.at(-1) !== top && folders.length <= MAX_NAMES) {
      const above = await open(fdPath(folder, '..'), O_PATH | constants.O_DIRECTORY);
      if (folder !== start) await folder.close();
      folder = above;
      folders.push(await folderOf(folder));
    }
  } finally {
    if (folder !== start) await folder.close();
  }
  return folders;
}
