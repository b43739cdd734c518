import { readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { writeFileAtomicallySync } from './atomic-file.js';
import { makeDirectories, syncDirectorySync } from './directories.js';
import { ExplainedError } from './explained-error.js';

/**
 * Returns a getter of the parsed content of a file that only its owner may read. The first call creates a missing file
 * with the text of `make`; later calls parse the file again when it has changed. The getter throws ExplainedError when
 * others may read the file, and when it is gone after the first call: new keys would not open secrets of the previous
 * ones.
 */
export function privateFile<T>(file: string, make: () => string, parse: (text: string) => T): () => T {
  let read: { version: string; parsed: T } | undefined;
  return () => {
    if (!read) createPrivateFile(file, make);
    const found = statSync(file, { throwIfNoEntry: false });
    if (!found) throw new ExplainedError(`${file} has gone, and its keys are in use: put it back`);
    const { ino, mtimeMs, mode } = found;
    const version = `${ino} ${mtimeMs}`;
    if (read?.version === version) return read.parsed;
    if ((mode & 0o077) !== 0) {
      throw new ExplainedError(`${file} holds keys and others may read it: run "chmod 600 ${file}"`);
    }
    read = { version, parsed: parse(readFileSync(file, 'utf8')) };
    return read.parsed;
  };
}

/** Creates the file when it is missing. When two processes create it at once, both use the first one. */
export function createPrivateFile(file: string, make: () => string): void {
  if (statSync(file, { throwIfNoEntry: false })) return;
  makeDirectories(dirname(file), 0o700);
  try {
    writeFileAtomicallySync(file, make(), { replace: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    // The process that created the file may not have synced it yet, and this one may seal with its key.
    syncDirectorySync(dirname(file));
  }
}
