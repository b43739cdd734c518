import { randomUUID } from 'node:crypto';
import { mkdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { makeImage, mountImage, growImage, unmountImage, detachImage, MOUNT_POINT } from './disk-image.js';
import { withDiskLock } from './disk-lock.js';
import { isLocalFileSystem } from './local-file-system.js';

const PROGRAMS = {
  'mkfs.ext4': 'e2fsprogs',
  e2fsck: 'e2fsprogs',
  resize2fs: 'e2fsprogs',
  flock: 'util-linux',
  losetup: 'mount',
  mount: 'mount',
};

/**
 * Makes, mounts and grows a disk in `scratch`. Undefined: volumes below `root` can have caps; otherwise the reason, and
 * a remedy.
 */
export async function explainNoDisks(root: string, scratch: string): Promise<string | undefined> {
  if (!(await isLocalFileSystem(root))) {
    return `${root} is on a file system that machines share: choose a local one with --volumes-dir`;
  }
  const volume = join(scratch, `disk-${randomUUID()}`);
  try {
    await mkdir(volume, { recursive: true, mode: 0o700 });
    await withDiskLock(volume, async (lock) => {
      try {
        await makeImage(volume, 1, lock);
        await growImage(volume, 2, lock);
        await mountImage(volume, lock);
        await unmountImage(volume, lock);
      } finally {
        await detachImage(volume, lock, MOUNT_POINT);
      }
    });
    return undefined;
  } catch (error) {
    const { code, path, message } = error as NodeJS.ErrnoException;
    const debian = code === 'ENOENT' ? PROGRAMS[path as keyof typeof PROGRAMS] : undefined;
    return debian === undefined
      ? `a file system in a file cannot be used (${message}): see docs/runtimes.md#volumes-with-a-cap`
      : `${path} is missing: install it (Debian: ${debian})`;
  } finally {
    await rm(volume, { recursive: true, force: true }).catch(() => undefined);
    await rmdir(scratch).catch(() => undefined);
  }
}
