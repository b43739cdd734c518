import { linkSync, mkdirSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { ExplainedError } from '../lib/explained.js';
import { Keyring } from './keyring.js';

/** Where the keys come from: given as text, or a file that is made when it is missing. */
export type KeySource = { keys: string } | { file: string };

/** Names the place in messages. */
export function describeSource(source: KeySource): string {
  return 'file' in source ? source.file : 'SANDKEEP_SECRET_KEYS';
}

/** Keys that are given go before the file, which is in the data directory unless it is named. */
export function keySourceOf({
  dataDir,
  secretKeys,
  secretKeysFile,
}: {
  dataDir: string;
  secretKeys?: string;
  secretKeysFile?: string;
}): KeySource {
  return secretKeys === undefined
    ? { file: secretKeysFile ?? join(dataDir, 'secret-keys') }
    : { keys: secretKeys };
}

/**
 * Gives the keys as they are now: of a file that has changed it reads the new ones, so that a service need not be
 * restarted after a rotation. Throws ExplainedError when there are none, or others may read the file.
 */
export function openKeyring(source: KeySource): () => Keyring {
  if ('keys' in source) {
    const keyring = Keyring.parse(source.keys, describeSource(source));
    return () => keyring;
  }
  let read: { version: string; keyring: Keyring } | undefined;
  return () => {
    makeKeyFile(source.file);
    const { ino, mtimeMs, mode } = statSync(source.file);
    const version = `${ino} ${mtimeMs}`;
    if (read?.version === version) return read.keyring;
    if ((mode & 0o077) !== 0) {
      throw new ExplainedError(
        `${source.file} holds keys and others may read it: run "chmod 600 ${source.file}"`,
      );
    }
    read = { version, keyring: Keyring.parse(readFileSync(source.file, 'utf8'), source.file) };
    return read.keyring;
  };
}

/** Puts a new key before those that are there. */
export function addKey(file: string): void {
  makeKeyFile(file);
  replace(file, `${Keyring.makeKey()}\n${readFileSync(file, 'utf8')}`);
}

/** Leaves only the key that seals. */
export function dropOldKeys(file: string): void {
  const [first] = readFileSync(file, 'utf8').split('\n');
  replace(file, `${first}\n`);
}

/** Of two processes that make it at once both use the one that was there first. */
function makeKeyFile(file: string): void {
  if (statSync(file, { throwIfNoEntry: false })) return;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const draft = draftOf(file);
  writeFileSync(draft, `${Keyring.makeKey()}\n`, { mode: 0o600, flush: true });
  try {
    // A link appears with its whole content, and only where there is nothing yet.
    linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(draft);
  }
}

function replace(file: string, text: string): void {
  const draft = draftOf(file);
  writeFileSync(draft, text, { mode: 0o600, flush: true });
  renameSync(draft, file);
}

function draftOf(file: string): string {
  return `${file}.${randomBytes(6).toString('hex')}`;
}
