import { constants } from 'node:fs';
import {
  chmod,
  lstat,
  mkdir,
  open,
  opendir,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../../../lib/directories.js';
import { mountsBelow } from '../../../lib/mount-table.js';
import { sleep } from '../../../lib/sleep.js';
import { ignoreMissing } from '../guest-path.js';
import { removeTree } from '../remove-tree.js';
import { VolumeDiskError } from './errors.js';
import { runProgram } from './program.js';

const GIB = 1024 ** 3;
export const DATA = 'data';
/** On the same file system as the data, invisible to guests. */
export const INCOMING = 'incoming';

const IMAGE = 'disk.ext4';
const NEW_IMAGE = 'disk.new';
/** Where the service mounts the image. Empty otherwise, so an unmounted disk is never taken for an empty volume. */
export const MOUNT_POINT = 'disk';
/** An image that is not complete is mounted there. */
export const MAKING_POINT = 'disk.making';
/** The files of the directory are in the new image: a crash may have left them in both. */
const COPIED_MARK = 'disk.copied';
/** The image has grown, and its file system may not have. */
const GROWING_MARK = 'disk.growing';

const MKFS_MS = 120_000;
const MOUNT_MS = 60_000;
const RESIZE_MS = 600_000;
const COPY_MS = 4 * 3_600_000;

/**
 * A sparse file needs no zeroes in its inode tables, so mkfs(8) skips them by holes; the kernel would fill 1.6 % of the
 * disk with zeroes after the mount. The journal stays a hole until it is used. 20 GiB take 20 ms and 4.4 MB.
 */
const MKFS_OPTIONS = ['-q', '-F', '-b', '4096', '-m', '0', '-E', 'lazy_itable_init=0,lazy_journal_init=1'];
/**
 * `discard`: the space of deleted files returns to the machine. A guest cannot make devices, and `nodev` holds if it
 * could.
 */
const MOUNT_OPTIONS = 'loop,nodev,nosuid,discard,errors=remount-ro';

/** All of them need the lock of the volume. `volume`: its directory. */

export async function imageGib(volume: string): Promise<number | undefined> {
  const found = await lstat(join(volume, IMAGE)).catch(ignoreMissing);
  return found && Math.floor(found.size / GIB);
}

export async function isGrowing(volume: string): Promise<boolean> {
  return (await lstat(join(volume, GROWING_MARK)).catch(ignoreMissing)) !== undefined;
}

export async function isMounted(volume: string, at = MOUNT_POINT): Promise<boolean> {
  const point = await stat(join(volume, at)).catch(ignoreMissing);
  return point !== undefined && point.dev !== (await stat(volume)).dev;
}

/**
 * mount(8) takes the loop device that the image has already, such as that of a sandbox: the file system is the same
 * one.
 */
export async function mountImage(
  volume: string,
  lock: FileHandle,
  { image = IMAGE, at = MOUNT_POINT } = {},
): Promise<void> {
  if (await isMounted(volume, at)) return;
  const point = join(volume, at);
  await mkdir(point, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  const args = ['-t', 'ext4', '-o', MOUNT_OPTIONS, '--', join(volume, image), point];
  await runProgram('mount', args, { lock, timeoutMs: MOUNT_MS });
}

/**
 * Throws while something here has a file of it open. The loop device goes with the last mount, also those of sandboxes.
 */
export async function unmountImage(volume: string, lock: FileHandle): Promise<void> {
  if (!(await isMounted(volume))) return;
  await runProgram('umount', [join(volume, MOUNT_POINT)], { lock, timeoutMs: MOUNT_MS });
}

/** Hides the disk from paths at once. Open files stay valid. */
export async function detachImage(volume: string, lock: FileHandle, at: string): Promise<void> {
  while (await isMounted(volume, at)) {
    await runProgram('umount', ['--lazy', join(volume, at)], { lock, timeoutMs: MOUNT_MS });
  }
}

/** Turns the directory into a disk of that size. Until the image has its name, the directory has the files. */
export async function makeImage(
  volume: string,
  capGib: number,
  lock: FileHandle,
  signal?: AbortSignal,
): Promise<void> {
  await detachImage(volume, lock, MAKING_POINT);
  const made = join(volume, NEW_IMAGE);
  await rm(made, { force: true });
  await rm(join(volume, COPIED_MARK), { force: true });
  try {
    await writeFile(made, '', { mode: 0o600, flag: 'wx' });
    await truncate(made, capGib * GIB);
    await runProgram('mkfs.ext4', [...MKFS_OPTIONS, made], { lock, timeoutMs: MKFS_MS });
    await mountImage(volume, lock, { image: NEW_IMAGE, at: MAKING_POINT });
    try {
      await fill(volume, lock, signal);
      await runProgram('umount', [join(volume, MAKING_POINT)], { lock, timeoutMs: MOUNT_MS });
    } finally {
      await detachImage(volume, lock, MAKING_POINT);
    }
    await rmdir(join(volume, MAKING_POINT));
    await syncFile(made);
  } catch (error) {
    await rm(made, { force: true }).catch(() => undefined);
    throw error;
  }
  await writeFile(join(volume, COPIED_MARK), '');
  await syncDirectory(volume);
  await rename(made, join(volume, IMAGE));
  await syncDirectory(volume);
}

/**
 * Removes what the conversion replaced. A directory that another release wrote beside an image has no mark, and stays.
 */
export async function removeCopied(volume: string, lock: FileHandle): Promise<void> {
  const mark = join(volume, COPIED_MARK);
  if (!(await lstat(mark).catch(ignoreMissing))) return;
  for (const name of [DATA, INCOMING]) await removeTree(lock, name, async (piece) => piece());
  await rm(mark, { force: true });
}

/**
 * Lets the image grow to the cap. A mounted file system grows only for a service with CAP_SYS_RESOURCE; false: it grows
 * at a later use, when nobody has it mounted. The mark keeps that in mind, and that a crash came in between.
 */
export async function growImage(volume: string, capGib: number, lock: FileHandle): Promise<boolean> {
  await writeFile(join(volume, GROWING_MARK), '');
  await syncDirectory(volume);
  const image = join(volume, IMAGE);
  if ((await stat(image)).size < capGib * GIB) await truncate(image, capGib * GIB);
  await unmountImage(volume, lock).catch(() => undefined);
  const grown = (await isFree(image)) ? await growFree(image, lock) : await growMounted(volume, lock);
  if (grown) await rm(join(volume, GROWING_MARK), { force: true });
  return grown;
}

/** resize2fs(8) wants a file system that e2fsck(8) has just seen. */
async function growFree(image: string, lock: FileHandle): Promise<boolean> {
  await runProgram('e2fsck', ['-f', '-p', image], { lock, timeoutMs: RESIZE_MS, ok: [0, E2FSCK_CORRECTED] });
  await runProgram('resize2fs', [image], { lock, timeoutMs: RESIZE_MS });
  return true;
}

/** It must be mounted here: resize2fs(8) destroys a file system that it takes for an unmounted one. */
async function growMounted(volume: string, lock: FileHandle): Promise<boolean> {
  await mountImage(volume, lock);
  const device = (await mountsBelow(join(volume, MOUNT_POINT))).at(-1)?.source;
  if (device === undefined) throw new Error('the disk is not mounted');
  await runProgram('losetup', ['--set-capacity', device], { lock, timeoutMs: MOUNT_MS });
  try {
    await runProgram('resize2fs', [device], { lock, timeoutMs: RESIZE_MS });
    return true;
  } catch (error) {
    if (!/Permission denied/.test((error as Error).message)) throw error;
    return false;
  }
}

/**
 * The kernel clears a loop device a moment after the last mount, and udev may hold it for another. On a busy machine
 * half a second was not enough, and a service without CAP_SYS_RESOURCE then started a sandbox with the old size.
 */
async function isFree(image: string): Promise<boolean> {
  for (let round = 0; round < 40; round += 1) {
    if (!(await attachedImages()).includes(image)) return true;
    await sleep(50);
  }
  return false;
}

/** The files that loop devices of this machine have. */
export async function attachedImages(): Promise<string[]> {
  const devices = (await readdir('/sys/block')).filter((name) => name.startsWith('loop'));
  const files = await Promise.all(
    devices.map(async (device) => readFile(`/sys/block/${device}/loop/backing_file`, 'utf8').catch(() => '')),
  );
  return files.map((file) => file.trimEnd()).filter((file) => file !== '');
}

const E2FSCK_CORRECTED = 1;

/** The directory that a disk would replace is empty. */
export async function hasNoFiles(volume: string): Promise<boolean> {
  const directory = await opendir(join(volume, DATA)).catch(ignoreMissing);
  if (!directory) return true;
  try {
    return (await directory.read()) === null;
  } finally {
    await directory.close();
  }
}

async function fill(volume: string, lock: FileHandle, signal: AbortSignal | undefined): Promise<void> {
  const disk = join(volume, MAKING_POINT);
  await mkdir(join(disk, DATA));
  await mkdir(join(disk, INCOMING), { mode: 0o700 });
  // The umask would restrict the mode of mkdir.
  await chmod(join(disk, DATA), 0o777);
  const before = join(volume, DATA);
  if (await hasNoFiles(volume)) return;
  try {
    const args = ['--archive', '--sparse=always', '--one-file-system', '--', `${before}/.`, join(disk, DATA)];
    await runProgram('cp', args, { lock, timeoutMs: COPY_MS, signal });
  } catch (cause) {
    if (!/no space left on device/i.test((cause as Error).message)) throw cause;
    throw new VolumeDiskError(
      'does_not_fit',
      'the files of the volume do not fit under its cap: raise or remove the cap, or remove files first',
      { cause },
    );
  }
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, constants.O_RDONLY);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
