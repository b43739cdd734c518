import { existsSync, readFileSync } from 'node:fs';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { createPrivateFile, privateFile } from '../lib/private-file.js';
import { Keyring } from './keyring.js';

export type KeySource = { keys: string } | { file: string };

export function describeSource(source: KeySource): string {
  return 'file' in source ? source.file : 'SANDKEEP_SECRET_KEYS';
}

export function keySourceOf({
  secretKeys,
  secretKeysFile,
}: {
  secretKeys?: string | undefined;
  secretKeysFile: string;
}): KeySource {
  return secretKeys === undefined ? { file: secretKeysFile } : { keys: secretKeys };
}

/** A getter of the current keys, which reads a changed file again. Throws ExplainedError. */
export function openKeyring(source: KeySource): () => Keyring {
  if ('keys' in source) {
    const keyring = Keyring.parse(source.keys, describeSource(source));
    return () => keyring;
  }
  return privateFile(source.file, makeKeyLine, (text) => Keyring.parse(text, source.file));
}

export function findKeyring(source: KeySource): Keyring | undefined {
  return 'file' in source && !existsSync(source.file) ? undefined : openKeyring(source)();
}

/** The new key seals from now on; the previous keys still open. */
export function addKey(file: string): void {
  createPrivateFile(file, makeKeyLine);
  writeFileAtomicallySync(file, `${makeKeyLine()}${readFileSync(file, 'utf8')}`, { replace: true });
}

export function dropOldKeys(file: string): void {
  const [first] = readFileSync(file, 'utf8').split('\n');
  writeFileAtomicallySync(file, `${first}\n`, { replace: true });
}

function makeKeyLine(): string {
  return `${Keyring.makeKey()}\n`;
}
