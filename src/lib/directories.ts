import { closeSync, fsyncSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/**
 * Makes a directory and those above it that are missing, as `mkdir -p` does. Returns the first that was made; undefined when it was
 * there. For paths that somebody gives: `recursive` of Node's own goes on for ever where a file system has no place for directories and
 * says ENOENT, as /proc does.
 */
export function makeDirectories(path: string, mode: number): string | undefined {
  const whole = resolve(path);
  if (isDirectory(whole)) return undefined;
  const above = makeDirectories(dirname(whole), mode);
  try {
    mkdirSync(whole, { mode });
  } catch (error) {
    // Another process may have been quicker.
    if (!isDirectory(whole)) throw error;
    return above;
  }
  return above ?? whole;
}

/** What was made, renamed or removed in a directory stays so when the power goes. */
export function keepNames(directory: string): void {
  const opened = openSync(directory, 'r');
  try {
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
