import type { BigIntStats, Stats } from 'node:fs';
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { fdPath, openForStat, splitPath, VolumePathError } from '../storage/guest-path.js';
import type { VolumeFile } from './schema.js';
import type { VolumeTarget } from './target.js';

/** Links, pipes, sockets and devices are hidden: guests create them, and they may lead out of the volume. */
export function isServed(stats: Stats): boolean {
  return stats.isFile() || stats.isDirectory();
}

/** Holes take no space. */
export function allocatedBytes(stats: Stats): number {
  return stats.blocks * 512;
}

/** The caller closes `handle`. Throws VolumePathError. */
export async function openEntry(
  ctx: Context,
  { orgId, volumeId }: VolumeTarget,
  path: string,
): Promise<{ handle: FileHandle; stats: Stats }> {
  const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path);
  try {
    const found = await openForStat(parent, name ?? '.');
    if (isServed(found.stats)) return found;
    await found.handle.close();
    throw new VolumePathError('not_found', `"${name}" is neither a file nor a directory`);
  } finally {
    await parent.close();
  }
}

/** The caller closes `file`. Throws VolumePathError, and ApiError for a directory. */
export async function openFile(
  ctx: Context,
  target: VolumeTarget,
  path: string,
): Promise<{ file: FileHandle; stats: Stats }> {
  const { handle, stats } = await openEntry(ctx, target, path);
  try {
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
    kind: stats.isDirectory() ? 'directory' : 'file',
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

const YEAR_10000_MS = 253_402_300_800_000;

/** Null outside of RFC 3339: guests may set any time. */
export function timeOf(millis: number): string | null {
  const inRange = millis > -62_167_219_200_000 && millis < YEAR_10000_MS;
  return inRange ? new Date(Math.floor(millis)).toISOString() : null;
}
