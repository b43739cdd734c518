import { constants, type Stats } from 'node:fs';
import { bytesOfName } from '../../lib/byte-names.js';
import { lstat, mkdir, open, type FileHandle } from 'node:fs/promises';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** Node does not export it. Such a descriptor needs no read permission and never waits for a pipe. */
export const O_PATH = 0o10000000;

/** The limits of Linux, in bytes. */
export const PATH_BYTES = 4096;
export const NAME_BYTES = 255;
/** Each name is opened. */
export const MAX_NAMES = 256;

export type VolumePathErrorKind =
  | 'invalid'
  | 'not_found'
  | 'not_a_directory'
  | 'symlink'
  /** Without `/proc/self/fd` paths cannot be opened safely. */
  | 'unsupported';

/** Has no path of this machine. */
export class VolumePathError extends Error {
  constructor(
    readonly kind: VolumePathErrorKind,
    message: string,
  ) {
    super(message);
  }
}

/** The names below the top of the volume. Throws VolumePathError. */
export function splitPath(path: string): string[] {
  const invalid = (what: string) => new VolumePathError('invalid', `the path ${what}`);
  if (path === '') throw invalid('is empty: use / for the top');
  if (path.includes('\0')) throw invalid('must not contain U+0000');
  if (!path.isWellFormed()) throw invalid('must not contain half of a surrogate pair');
  if (bytesOfName(path).length > PATH_BYTES) throw invalid(`is longer than ${PATH_BYTES} bytes`);
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  if (names.length > MAX_NAMES) throw invalid(`has more than ${MAX_NAMES} names`);
  for (const name of names) {
    if (name === '..') throw invalid('must not contain ".."');
    if (bytesOfName(name).length > NAME_BYTES) throw invalid(`has a name longer than ${NAME_BYTES} bytes`);
  }
  return names;
}

/**
 * The kernel resolves only `name` in the open directory, wherever that moved. Guests' names need not be UTF-8: a name
 * is bytes, or a text in the form of `lib/byte-names.ts`.
 */
export function fdPath(directory: FileHandle, name?: string | Buffer): Buffer {
  const self = Buffer.from(`/proc/self/fd/${directory.fd}`);
  if (name === undefined) return self;
  return Buffer.concat([self, Buffer.from('/'), typeof name === 'string' ? bytesOfName(name) : name]);
}

export async function openDirectoryAt(parent: FileHandle, name: string | Buffer): Promise<FileHandle> {
  return openAt(parent, name, O_RDONLY | O_DIRECTORY);
}

/** Never follows a symlink. The caller closes it. */
export async function openAt(parent: FileHandle, name: string | Buffer, flags: number): Promise<FileHandle> {
  try {
    // A guest's pipe would wait for its other end.
    return await open(fdPath(parent, name), flags | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    throw await explain(parent, name, error);
  }
}

/**
 * Without side effects: opening a device or a pipe has some. The caller closes `handle`; `fdPath(handle)` opens it
 * again.
 */
export async function openForStat(
  parent: FileHandle,
  name: string | Buffer,
): Promise<{ handle: FileHandle; stats: Stats }> {
  const handle = await openAt(parent, name, O_PATH);
  try {
    return { handle, stats: await handle.stat() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Writable for any guest user. Throws VolumePathError. */
async function makeDirectoryAt(parent: FileHandle, name: string): Promise<FileHandle> {
  try {
    await mkdir(fdPath(parent, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return openDirectoryAt(parent, name);
  }
  const made = await openDirectoryAt(parent, name);
  try {
    // The umask would restrict the mode of mkdir.
    await made.chmod(0o777);
    return made;
  } catch (error) {
    await made.close();
    throw error;
  }
}

/** Closes `top`; the caller closes the result. `make`: creates missing directories. */
export async function openDescendant(
  top: FileHandle,
  names: readonly string[],
  { make = false } = {},
): Promise<FileHandle> {
  let directory = top;
  for (const name of names) {
    const parent = directory;
    try {
      directory = await openDirectoryAt(parent, name).catch((error: unknown) => {
        if (make && error instanceof VolumePathError && error.kind === 'not_found') {
          return makeDirectoryAt(parent, name);
        }
        throw error;
      });
    } finally {
      await parent.close();
    }
  }
  return directory;
}

async function explain(parent: FileHandle, name: string | Buffer, cause: unknown): Promise<unknown> {
  switch ((cause as NodeJS.ErrnoException).code) {
    case 'ENOENT':
      return new VolumePathError('not_found', `"${String(name)}" does not exist`);
    case 'ELOOP':
      return new VolumePathError('symlink', `"${String(name)}" is a symbolic link, which is not followed`);
    case 'ENOTDIR': {
      const found = await lstat(fdPath(parent, name)).catch(() => undefined);
      return found?.isSymbolicLink() === true
        ? new VolumePathError('symlink', `"${String(name)}" is a symbolic link, which is not followed`)
        : new VolumePathError('not_a_directory', `"${String(name)}" is not a directory`);
    }
    default:
      return cause;
  }
}

/** A handler for `catch` that rethrows every other error. */
export function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
