import { randomBytes } from 'node:crypto';
import { linkSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { keepNames, makeDirectories } from './directories.js';
import { ExplainedError } from './explained-error.js';

/**
 * Gives what is in a file that only its owner may read, as it is now: one that has changed is read again. One that is missing
 * at the first call is made with what `make` gives. One that goes later is not: in place of keys that are in use it would hold
 * others, which nobody asked for. The function that is returned throws ExplainedError then, and when others may read the file.
 */
export function privateFile<T>(file: string, make: () => string, parse: (text: string) => T): () => T {
  let read: { version: string; parsed: T } | undefined;
  return () => {
    if (!read) makePrivateFile(file, make);
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

/** Of two processes that make it at once both use the one that was there first. */
export function makePrivateFile(file: string, make: () => string): void {
  if (statSync(file, { throwIfNoEntry: false })) return;
  makeDirectories(dirname(file), 0o700);
  const draft = draftOf(file);
  writeFileSync(draft, make(), { mode: 0o600, flush: true });
  try {
    // A link appears with its whole content, and only where there is nothing yet.
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(draft);
  }
  // What is sealed or signed from now on must not outlive its key when the power goes.
  keepNames(dirname(file));
}

export function replacePrivateFile(file: string, text: string): void {
  const draft = draftOf(file);
  writeFileSync(draft, text, { mode: 0o600, flush: true });
  renameSync(draft, file);
  keepNames(dirname(file));
}

function draftOf(file: string): string {
  return `${file}.${randomBytes(6).toString('hex')}`;
}
