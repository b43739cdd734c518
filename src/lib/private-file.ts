import { randomBytes } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { ExplainedError } from './explained.js';

/**
 * Gives what is in a file that only its owner may read, as it is now: one that has changed is read again. A missing one is
 * made with what `make` gives. The function that is returned throws ExplainedError when others may read the file.
 */
export function privateFile<T>(file: string, make: () => string, parse: (text: string) => T): () => T {
  let read: { version: string; parsed: T } | undefined;
  return () => {
    makePrivateFile(file, make);
    const { ino, mtimeMs, mode } = statSync(file);
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
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
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
}

export function replacePrivateFile(file: string, text: string): void {
  const draft = draftOf(file);
  writeFileSync(draft, text, { mode: 0o600, flush: true });
  renameSync(draft, file);
}

function draftOf(file: string): string {
  return `${file}.${randomBytes(6).toString('hex')}`;
}
