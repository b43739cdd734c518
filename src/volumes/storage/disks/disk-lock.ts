import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { runProgram } from './program.js';

const LONGEST_WAIT_S = 600;

/**
 * Runs `work` while no other process of this machine works on the disk of the volume: two loop devices of one image
 * would destroy its file system. The lock is flock(2) on the directory. It belongs to the open file, which flock(1),
 * this process and the programs of `work` share; the kernel releases it when the last of them ends. Without `waits` a
 * lock of somebody else throws.
 */
export async function withDiskLock<T>(
  volume: string,
  work: (lock: FileHandle) => Promise<T>,
  { waits = true, signal }: { waits?: boolean; signal?: AbortSignal | undefined } = {},
): Promise<T> {
  const lock = await open(volume, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    const patience = waits ? ['--wait', String(LONGEST_WAIT_S)] : ['--nonblock'];
    await runProgram('flock', ['--exclusive', ...patience, '3'], {
      lock,
      timeoutMs: (LONGEST_WAIT_S + 10) * 1_000,
      signal,
    });
    return await work(lock);
  } finally {
    await lock.close();
  }
}
