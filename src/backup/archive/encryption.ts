import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import type { ReadableStream as NodeWebStream } from 'node:stream/web';
import { ExplainedError } from '../../lib/explained-error.js';
import { DamagedArchive } from './reader.js';

export type Encrypt = (source: AsyncIterable<Buffer>) => AsyncIterable<Buffer>;
export type Unlock = (source: AsyncIterable<Buffer>) => Promise<AsyncIterable<Buffer>>;

/** The format of age (age-encryption.org/v1), so that the program age opens an archive as well. */
const MAGIC = 'age-encryption.org/v1';

export function isEncrypted(beginning: Buffer): boolean {
  return beginning.toString('latin1').startsWith(MAGIC);
}

export interface EncryptionOptions {
  encryptTo: readonly string[];
  passphraseFile?: string | undefined;
}

/** Undefined without a recipient and a passphrase. Throws ExplainedError for a wrong recipient or file. */
export async function encryptionFor({
  encryptTo,
  passphraseFile,
}: EncryptionOptions): Promise<Encrypt | undefined> {
  if (encryptTo.length === 0 && passphraseFile === undefined) return undefined;
  if (encryptTo.length > 0 && passphraseFile !== undefined) {
    throw new ExplainedError(
      'a backup is encrypted to keys or under a passphrase, not both: name one of them',
    );
  }
  // Loaded on demand: few commands encrypt.
  const { Encrypter } = await import('age-encryption');
  const encrypter = new Encrypter();
  if (passphraseFile !== undefined) encrypter.setPassphrase(readPassphrase(passphraseFile));
  for (const recipient of encryptTo) {
    try {
      encrypter.addRecipient(recipient);
    } catch (cause) {
      throw new ExplainedError(
        `"${recipient}" is not a public key of age: it must be like age1…, as "age-keygen" prints it`,
        { cause },
      );
    }
  }
  return (source) => encrypted(source, (stream) => encrypter.encrypt(stream));
}

export interface UnlockOptions {
  identityFile?: string | undefined;
  passphraseFile?: string | undefined;
}

/** Undefined without a key. Throws ExplainedError for a wrong file. */
export async function unlockFor({
  identityFile,
  passphraseFile,
}: UnlockOptions): Promise<Unlock | undefined> {
  if (identityFile === undefined && passphraseFile === undefined) return undefined;
  const { Decrypter } = await import('age-encryption');
  const decrypter = new Decrypter();
  if (passphraseFile !== undefined) decrypter.addPassphrase(readPassphrase(passphraseFile));
  for (const line of identityFile === undefined ? [] : identitiesIn(identityFile)) {
    try {
      decrypter.addIdentity(line);
    } catch (cause) {
      throw new ExplainedError(`${identityFile} has a line that is no private key of age`, { cause });
    }
  }
  return async (source) => {
    const stream = webStream(source);
    try {
      return opened(await decrypter.decrypt(stream));
    } catch (cause) {
      if (/no identity matched/.test((cause as Error).message))
        throw new ExplainedError('it is encrypted to another key or under another passphrase', { cause });
      throw new DamagedArchive(`its encryption was changed (${(cause as Error).message})`, { cause });
    }
  };
}

async function* encrypted(
  source: AsyncIterable<Buffer>,
  encrypt: (stream: ReadableStream<Uint8Array>) => Promise<ReadableStream<Uint8Array>>,
): AsyncGenerator<Buffer> {
  const stream = await encrypt(webStream(source));
  yield* Readable.fromWeb(stream as NodeWebStream) as AsyncIterable<Buffer>;
}

async function* opened(stream: ReadableStream<Uint8Array>): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of Readable.fromWeb(stream as NodeWebStream))
      yield Buffer.from(chunk as Uint8Array);
  } catch (cause) {
    throw new DamagedArchive('it was changed, or its end is missing: its encryption does not hold', {
      cause,
    });
  }
}

function webStream(source: AsyncIterable<Buffer>): ReadableStream<Uint8Array> {
  return Readable.toWeb(Readable.from(source, { objectMode: false })) as ReadableStream<Uint8Array>;
}

function readPassphrase(file: string): string {
  const passphrase = readText(file).split('\n')[0]!.replace(/\r$/, '');
  if (passphrase === '') throw new ExplainedError(`${file} is empty: its first line must be the passphrase`);
  return passphrase;
}

function identitiesIn(file: string): string[] {
  const lines = readText(file)
    .split('\n')
    .map((line) => line.trim());
  const identities = lines.filter((line) => line !== '' && !line.startsWith('#'));
  if (identities.length === 0) throw new ExplainedError(`${file} has no private key of age`);
  return identities;
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new ExplainedError(`${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
}
