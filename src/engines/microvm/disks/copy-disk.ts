import { execFile } from 'node:child_process';
import { open } from 'node:fs/promises';
import { promisify } from 'node:util';
import { explainQcow2 } from './qcow2-header.js';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const LONGEST_COPY_MS = 15 * 60_000;
const SIZE_OFFSET = 24;

/**
 * Copies a disk that nobody writes to. File systems that can do so share the blocks. It copies bytes: a program that
 * reads the format would trust the header of a hostile sandbox.
 */
export async function copyDisk(from: string, to: string, signal: AbortSignal): Promise<void> {
  const program = ['--reflink=auto', '--sparse=always', '--', from, to];
  await run('cp', program, { signal, timeout: LONGEST_COPY_MS });
}

/**
 * Makes a copy durable and read-only, if it is a disk of this size that names no other file. Other monitors read it.
 * Undefined: it is one. Otherwise the reason.
 */
export async function sealLayer(
  file: string,
  sizeMib: number | undefined,
): Promise<string | { sizeMib: number }> {
  const handle = await open(file, 'r');
  try {
    const read = async (position: number, length: number) => {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, position);
      return buffer.subarray(0, bytesRead);
    };
    const reason = await explainQcow2(read);
    if (reason !== undefined) return reason;
    const found = Number((await read(SIZE_OFFSET, 8)).readBigUInt64BE()) / MIB;
    if (!Number.isSafeInteger(found) || found !== (sizeMib ?? found)) return 'its size has changed';
    await handle.chmod(0o400);
    await handle.sync();
    return { sizeMib: found };
  } finally {
    await handle.close();
  }
}
