import { open, readFile } from 'node:fs/promises';
import { Buffer } from 'node:buffer';
import { readCommandLine, RECORD_BYTES, type CommandState } from '../../guest/command-end.js';

/**
 * Reads the record of process 1 of a container in /proc of this machine. Undefined when the engine has other processes
 * than this machine shows, or the container runs under a kernel of its own.
 */
export async function readHostRecord(containerId: string, pid: number): Promise<CommandState | undefined> {
  try {
    const directory = `/proc/${pid}`;
    const state = readCommandLine(await firstBytes(`${directory}/cmdline`));
    // After the record: until here the number may have become another process.
    const groups = await readFile(`${directory}/cgroup`, 'latin1');
    return groups.includes(containerId) ? state : undefined;
  } catch {
    return undefined;
  }
}

/** A command line may have megabytes. */
async function firstBytes(path: string): Promise<Buffer> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(RECORD_BYTES), 0, RECORD_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
