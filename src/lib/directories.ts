import { closeSync, fsyncSync, mkdirSync, openSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Creates a directory and its missing parents. Returns the topmost directory that it created; undefined when the path
 * exists. Node's own `recursive` never returns where a file system answers ENOENT to mkdir, as /proc does.
 */
export function makeDirectories(path: string, mode: number): string | undefined {
  const whole = resolve(path);
  if (isDirectory(whole)) return undefined;
  const above = makeDirectories(dirname(whole), mode);
  try {
    mkdirSync(whole, { mode });
  } catch (error) {
    if (!isDirectory(whole)) throw error;
    return above;
  }
  return above ?? whole;
}

/**
 * Makes the names in a directory durable: files that were created, renamed or removed there stay so after a power
 * failure.
 */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export function syncDirectorySync(directory: string): void {
  const descriptor = openSync(directory, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
