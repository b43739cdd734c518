import { execFile } from 'node:child_process';
import { open, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { newId } from '../../../lib/uuid.js';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const PROGRAM_MS = 60_000;
/** A file of ext4 on the machine has up to 16 TiB. The tables of a larger file system take seconds to make. */
export const LARGEST_DISK_MIB = 8 * 1024 * 1024;
/**
 * Empty inode tables of a sparse file are holes, which need no zeroes. The kernel of the sandbox would write 1.6 % of
 * the disk otherwise. The tables and bitmaps are in one place, without copies and without room to grow. A disk of
 * 20 GiB takes 0.5 MiB, and 6.6 MiB with the defaults.
 */
const FILE_SYSTEM = [
  '-q',
  '-F',
  '-t',
  'ext4',
  '-m',
  '0',
  '-O',
  '^resize_inode,sparse_super2',
  '-E',
  'lazy_itable_init=0,lazy_journal_init=1,packed_meta_blocks=1,num_backup_sb=0,root_owner=0:0',
];

/**
 * Makes a disk with an empty file system of ext4. It appears whole. `sizeMib`: the size that the sandbox sees; the file
 * grows with what the sandbox writes.
 */
export async function createDisk(file: string, sizeMib: number): Promise<void> {
  const draft = `${file}.${newId()}`;
  const raw = `${draft}.raw`;
  try {
    const handle = await open(raw, 'wx', 0o600);
    try {
      await handle.truncate(sizeMib * MIB);
    } finally {
      await handle.close();
    }
    await run('mke2fs', [...FILE_SYSTEM, raw], { timeout: PROGRAM_MS });
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', raw, draft], { timeout: PROGRAM_MS });
    await rename(draft, file);
  } finally {
    await rm(raw, { force: true });
    await rm(draft, { force: true });
  }
}

/** Makes the disk of a sandbox above layers, which its header does not name: the monitor gets them with it. */
export async function createDiskAbove(file: string, sizeMib: number): Promise<void> {
  await run('qemu-img', ['create', '-q', '-f', 'qcow2', file, `${sizeMib}M`], { timeout: PROGRAM_MS });
}
