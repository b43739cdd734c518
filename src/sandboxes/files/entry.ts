import { ApiError } from '../../http/errors.js';
import { exactInteger } from '../../lib/exact-json.js';
import { GuestFileError, type FileStat, type GuestFiles } from '../../guest/guest.js';
import { canonical, timeOf } from '../../volumes/files/entry.js';
import { VolumePathError } from '../../volumes/storage/guest-path.js';
import type { SandboxFile } from './schema.js';

const TYPE_BITS = 0o170000;
const KINDS: Record<number, SandboxFile['kind']> = {
  0o040000: 'directory',
  0o100000: 'file',
  0o120000: 'symlink',
};

export function kindOf({ mode }: FileStat): SandboxFile['kind'] {
  return KINDS[mode & TYPE_BITS] ?? 'other';
}

/** Without a repeated slash. Throws ApiError for a path with "..". */
export function absolutePath(path: string): string {
  try {
    return canonical(path);
  } catch (error) {
    if (!(error instanceof VolumePathError)) throw error;
    throw new ApiError('invalid_sandbox_path', error.message);
  }
}

export async function statIfThere(
  files: GuestFiles,
  path: string,
  options: { follow: boolean },
): Promise<FileStat | undefined> {
  try {
    return await files.stat(path, options);
  } catch (error) {
    const isAbsent =
      error instanceof GuestFileError && ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(error.errnoName);
    if (isAbsent) return undefined;
    throw error;
  }
}

export function present(path: string, stat: FileStat): SandboxFile {
  return {
    path,
    kind: kindOf(stat),
    // A sparse file of a tmpfs may have 2^63 - 1 bytes, and a guest may invent any size.
    size: exactInteger(stat.size),
    mode: stat.mode & 0o7777,
    uid: stat.uid,
    gid: stat.gid,
    readonly: (stat.mode & 0o222) === 0,
    accessed_at: timeOf(Number(stat.atime) * 1000),
    modified_at: timeOf(Number(stat.mtime) * 1000),
  };
}
