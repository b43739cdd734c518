import { constants, type Stats } from 'node:fs';
import { lstat, mkdir, open, type FileHandle } from 'node:fs/promises';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
/** Linux's own; Node does not name it. The same on every architecture that Node runs on there. */
const O_PATH = 0o10000000;

/** Longest path and longest name in bytes, as Linux has them. */
const PATH_BYTES = 4096;
const NAME_BYTES = 255;

export type VolumePathErrorKind =
  /** Not a path in a volume: `..`, U+0000, too long. */
  | 'invalid'
  | 'not_found'
  /** A part of the path that should be a directory is none. */
  | 'not_a_directory'
  /** A part of the path is a symbolic link, which is never followed. */
  | 'symlink'
  /** This machine cannot open paths safely: there is no `/proc/self/fd`. */
  | 'unsupported';

/** Why a path in a volume cannot be opened. The message is fit for users: it names no path of this machine. */
export class VolumePathError extends Error {
  constructor(
    readonly kind: VolumePathErrorKind,
    message: string,
  ) {
    super(message);
  }
}

/**
 * The names that lead from the top of a volume to `path`, which may be absolute or relative: both mean the same.
 * None for the top itself (`/`, `.`). Throws VolumePathError `invalid`.
 */
export function splitPath(path: string): string[] {
  const invalid = (what: string) => new VolumePathError('invalid', `the path ${what}`);
  if (path === '') throw invalid('is empty: use / for the top of the volume');
  if (path.includes('\0')) throw invalid('must not contain U+0000');
  if (!path.isWellFormed()) throw invalid('must not contain half of a surrogate pair');
  if (Buffer.byteLength(path) > PATH_BYTES) throw invalid(`is longer than ${PATH_BYTES} bytes`);
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  for (const name of names) {
    if (name === '..') throw invalid('must not contain ".."');
    if (Buffer.byteLength(name) > NAME_BYTES) throw invalid(`has a name longer than ${NAME_BYTES} bytes`);
  }
  return names;
}

/**
 * Names something in an opened directory, for calls that take a path: the kernel goes from the directory that is open,
 * wherever somebody has moved it, and `name` is a single step. What the call does with a symlink of that name is for the
 * caller to know. As bytes, because what a guest wrote need not be UTF-8.
 */
export function fdPath(directory: FileHandle, name?: string | Buffer): Buffer {
  const self = Buffer.from(`/proc/self/fd/${directory.fd}`);
  return name === undefined ? self : Buffer.concat([self, Buffer.from('/'), Buffer.from(name)]);
}

/** Opens a directory in an opened one, and nothing but a directory. The caller closes it. Throws VolumePathError. */
export async function openDirectoryAt(parent: FileHandle, name: string | Buffer): Promise<FileHandle> {
  return openAt(parent, name, O_RDONLY | O_DIRECTORY);
}

/** Opens something in an opened directory, never through a symlink and never waiting. The caller closes it. */
export async function openAt(parent: FileHandle, name: string | Buffer, flags: number): Promise<FileHandle> {
  try {
    // A pipe that a guest made would otherwise block until somebody opens its other end.
    return await open(fdPath(parent, name), flags | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    throw await explain(parent, name, error);
  }
}

/**
 * Looks at what is there, whatever it is, without opening it in a way that the thing itself would notice: opening a device
 * or a pipe already has effects. The caller closes `handle`, which can be looked at and, by `fdPath(handle)`, opened again.
 * A symlink is looked at itself.
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

/** Makes a directory in which any guest user may write, unless there is one, and opens it. Throws VolumePathError. */
async function makeDirectoryAt(parent: FileHandle, name: string): Promise<FileHandle> {
  try {
    await mkdir(fdPath(parent, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return openDirectoryAt(parent, name);
  }
  const made = await openDirectoryAt(parent, name);
  try {
    // Not by mkdir, whose mode is cut by the umask of this process.
    await made.chmod(0o777);
    return made;
  } catch (error) {
    await made.close();
    throw error;
  }
}

/**
 * Goes down from `top`, which it closes, by these names. `make`: directories that are missing are made. The caller closes
 * what is returned.
 */
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

/** For a catch: undefined when what is asked for is not there. Throws every other error. */
export function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
