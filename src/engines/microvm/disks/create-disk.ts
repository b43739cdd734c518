import { execFile } from 'node:child_process';
import { open, rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { newId } from '../../../lib/uuid.js';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const PROGRAM_MS = 60_000;
/** Blocks that nobody wrote take no room, in the raw file and in the disk. */
const FILE_SYSTEM = [
  '-q',
  '-t',
  'ext4',
  '-m',
  '0',
  '-E',
  'nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0',
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
