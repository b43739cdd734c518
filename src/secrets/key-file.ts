import { existsSync, readFileSync } from 'node:fs';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { createPrivateFile, privateFile } from '../lib/private-file.js';
import { Keyring } from './keyring.js';

/** Where the keys come from: given as text, or a file that is made when it is missing. */
export type KeySource = { keys: string } | { file: string };

/** Names the place in messages. */
export function describeSource(source: KeySource): string {
  return 'file' in source ? source.file : 'SANDKEEP_SECRET_KEYS';
}

/** Keys as text replace the file. */
export function keySourceOf({
  secretKeys,
  secretKeysFile,
}: {
  secretKeys?: string | undefined;
  secretKeysFile: string;
}): KeySource {
  return secretKeys === undefined ? { file: secretKeysFile } : { keys: secretKeys };
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
  return privateFile(source.file, makeKeyLine, (text) => Keyring.parse(text, source.file));
}

/** The keys of a place where there may be none, without making any. */
export function findKeyring(source: KeySource): Keyring | undefined {
  return 'file' in source && !existsSync(source.file) ? undefined : openKeyring(source)();
}

/** Puts a new key before those that are there. */
export function addKey(file: string): void {
  createPrivateFile(file, makeKeyLine);
  writeFileAtomicallySync(file, `${makeKeyLine()}${readFileSync(file, 'utf8')}`, { replace: true });
}

/** Leaves only the key that seals. */
export function dropOldKeys(file: string): void {
  const [first] = readFileSync(file, 'utf8').split('\n');
  writeFileAtomicallySync(file, `${first}\n`, { replace: true });
}

function makeKeyLine(): string {
  return `${Keyring.makeKey()}\n`;
}
