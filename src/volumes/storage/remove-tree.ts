import { randomUUID } from 'node:crypto';
import { opendir, rename, rmdir, unlink, type FileHandle } from 'node:fs/promises';
import {
  fdPath,
  ignoreMissing,
  openDirectoryAt,
  VolumePathError,
  type VolumePathErrorKind,
} from './guest-path.js';
import type { Step } from './growth.js';

/** Each level takes a file descriptor. Deeper directories are moved up first. */
const MAX_DEPTH = 32;
/** Bounds the work against a guest that keeps writing. */
const MAX_ROUNDS = 10_000;

/**
 * Each step starts at an open directory, so a symlink swapped in leads nowhere. Throws ENOTEMPTY when guests write
 * faster.
 */
export async function removeTree(parent: FileHandle, name: string | Buffer, step: Step): Promise<void> {
  for (let round = 1; ; round += 1) {
    const top = await openUnlessError(parent, name, ['not_found']);
    if (!top) return;
    try {
      await emptyDirectory(top, { top, step }, MAX_DEPTH);
    } finally {
      await top.close();
    }
    try {
      await rmdir(fdPath(parent, name));
      return;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return;
      if (code !== 'ENOTEMPTY' || round === MAX_ROUNDS) throw error;
    }
  }
}

interface Removal {
  top: FileHandle;
  step: Step;
}

async function emptyDirectory(
  directory: FileHandle,
  removal: Removal,
  remainingDepth: number,
): Promise<void> {
  const options = { encoding: 'buffer' as BufferEncoding };
  for await (const entry of await opendir(fdPath(directory), options)) {
    const name = entry.name as unknown as Buffer;
    try {
      await removal.step(() => unlink(fdPath(directory, name)));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') continue;
      // POSIX answers EPERM for a directory, Linux EISDIR.
      if (code !== 'EISDIR' && code !== 'EPERM') throw error;
      await removeDirectory(directory, name, removal, remainingDepth);
    }
  }
}

async function removeDirectory(
  parent: FileHandle,
  name: Buffer,
  removal: Removal,
  remainingDepth: number,
): Promise<void> {
  // The next round handles concurrent changes.
  if (remainingDepth === 0)
    return rename(fdPath(parent, name), fdPath(removal.top, randomUUID())).catch(ignoreMissing);
  const directory = await openUnlessError(parent, name, ['not_found', 'symlink', 'not_a_directory']);
  if (!directory) return;
  try {
    await emptyDirectory(directory, removal, remainingDepth - 1);
  } finally {
    await directory.close();
  }
  await rmdir(fdPath(parent, name)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTEMPTY' && error.code !== 'ENOTDIR') throw error;
  });
}

/** Undefined for an error of these kinds. */
async function openUnlessError(
  parent: FileHandle,
  name: string | Buffer,
  kinds: readonly VolumePathErrorKind[],
): Promise<FileHandle | undefined> {
  try {
    return await openDirectoryAt(parent, name);
  } catch (error) {
    if (error instanceof VolumePathError && kinds.includes(error.kind)) return undefined;
    throw error;
  }
}
