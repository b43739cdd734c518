import type { BigIntStats, Stats } from 'node:fs';
import { constants } from 'node:fs';
import { open, readlink, type FileHandle } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { textOfName } from '../../lib/byte-names.js';
import { fdPath, openForStat, splitPath, VolumePathError } from '../storage/guest-path.js';
import type { VolumeFile } from './schema.js';
import type { VolumeTarget } from './target.js';

/** Pipes, sockets and devices are hidden: guests create them. Symbolic links are shown and never followed. */
export function isServed(stats: Stats): boolean {
  return stats.isFile() || stats.isDirectory() || stats.isSymbolicLink();
}

/** Holes take no space. */
export function allocatedBytes(stats: Stats): number {
  return stats.blocks * 512;
}

/** A symbolic link has the text of its target. The caller closes `handle`. Throws VolumePathError. */
export async function openEntry(
  ctx: Context,
  { orgId, volumeId }: VolumeTarget,
  path: string,
): Promise<{ handle: FileHandle; stats: Stats; link?: string }> {
  const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path);
  try {
    const found = await openForStat(parent, name ?? '.');
    try {
      if (found.stats.isSymbolicLink()) return { ...found, link: await targetOf(parent, name!) };
      if (isServed(found.stats)) return found;
      throw new VolumePathError('not_found', `"${name}" is neither a file nor a directory`);
    } catch (error) {
      await found.handle.close();
      throw error;
    }
  } finally {
    await parent.close();
  }
}

/** Node cannot read the target of an open link, so a guest may have replaced the link since. */
async function targetOf(parent: FileHandle, name: string): Promise<string> {
  try {
    return textOfName(await readlink(fdPath(parent, name), { encoding: 'buffer' }));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EINVAL') throw error;
    throw new VolumePathError('not_found', `"${name}" does not exist any more`);
  }
}

/** Throws for a symbolic link, which is not followed. */
export function refuseLink(path: string, { link }: { link?: string }): void {
  if (link === undefined) return;
  const message = `"${path}" is a symbolic link to "${link}", which is not followed`;
  throw new VolumePathError('symlink', message);
}

/** The caller closes `file`. Throws VolumePathError, and ApiError for a directory. */
export async function openFile(
  ctx: Context,
  target: VolumeTarget,
  path: string,
): Promise<{ file: FileHandle; stats: Stats }> {
  const entry = await openEntry(ctx, target, path);
  const { handle, stats } = entry;
  try {
    refuseLink(path, entry);
    if (!stats.isFile()) throw new ApiError('invalid_volume_path', `${canonical(path)} is a directory`);
    // A guest's lease on the file would hold the call, and its thread, for 45 seconds.
    return { file: await open(fdPath(handle), constants.O_RDONLY | constants.O_NONBLOCK), stats };
  } finally {
    await handle.close();
  }
}

export function canonical(path: string): string {
  return `/${splitPath(path).join('/')}`;
}

/** `again`: reads the properties once more, for a sparse file beyond the exact range of a number. */
export async function present(
  path: string,
  stats: Stats,
  again: () => Promise<BigIntStats>,
): Promise<VolumeFile> {
  return {
    path,
    kind: kindOf(stats),
    size: Number.isSafeInteger(stats.size) ? stats.size : (await again()).size,
    mode: stats.mode & 0o7777,
    uid: stats.uid,
    gid: stats.gid,
    readonly: (stats.mode & 0o222) === 0,
    accessed_at: timeOf(stats.atimeMs),
    modified_at: timeOf(stats.mtimeMs),
    created_at: timeOf(stats.birthtimeMs),
  };
}

/**
 * Official SDKs know two kinds, and drop a list with another one. They see a link as a file, and are told at its use.
 */
export function inSdkForm(file: VolumeFile): VolumeFile {
  return file.kind === 'symlink' ? { ...file, kind: 'file' } : file;
}

function kindOf(stats: Stats): VolumeFile['kind'] {
  if (stats.isSymbolicLink()) return 'symlink';
  return stats.isDirectory() ? 'directory' : 'file';
}

const YEAR_10000_MS = 253_402_300_800_000;

/** Null outside of RFC 3339: guests may set any time. */
export function timeOf(millis: number): string | null {
  const inRange = millis > -62_167_219_200_000 && millis < YEAR_10000_MS;
  return inRange ? new Date(Math.floor(millis)).toISOString() : null;
}
