import type { Dir } from 'node:fs';
import { lstat, opendir, type FileHandle } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { textOfName } from '../../lib/byte-names.js';
import { fdPath } from '../storage/guest-path.js';
import type { Step } from '../storage/growth.js';
import { canonical, isServed, openEntry, present, refuseLink } from './entry.js';
import type { VolumeFile } from './schema.js';
import { stepsOf } from './steps.js';
import { findVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

/** A list has no pages. */
export const MAX_ENTRIES = 50_000;
const BATCH = 32;
const NAMES_BATCH = 256;

export async function list(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  abandoned: AbortSignal,
): Promise<VolumeFile[]> {
  await findVolume(ctx, target);
  const step = stepsOf(ctx, target, abandoned);
  return translateErrors(async () => {
    const entry = await openEntry(ctx, target, path);
    const { handle, stats } = entry;
    try {
      refuseLink(path, entry);
      if (!stats.isDirectory())
        throw new ApiError('invalid_volume_path', `${canonical(path)} is not a directory`);
      const names = await namesIn(handle, step);
      const top = canonical(path);
      const entries: VolumeFile[] = [];
      for (let start = 0; start < names.length; start += BATCH) {
        const batch = names.slice(start, start + BATCH);
        const shown = await step(() =>
          Promise.all(batch.map((name) => entryOf(handle, name, `${top === '/' ? '' : top}/${name}`))),
        );
        for (const entry of shown) if (entry) entries.push(entry);
      }
      return entries;
    } finally {
      await handle.close();
    }
  });
}

async function namesIn(directory: FileHandle, step: Step): Promise<string[]> {
  const names: string[] = [];
  const options = { encoding: 'buffer' as BufferEncoding, bufferSize: NAMES_BATCH };
  const entries = await opendir(fdPath(directory), options);
  try {
    for (let more = true; more;) {
      more = await step(() => readNames(entries, names));
      if (names.length > MAX_ENTRIES) {
        throw new ApiError(
          'invalid_volume_path',
          `the directory has more than ${MAX_ENTRIES} entries, which is the limit of a list`,
        );
      }
    }
  } finally {
    await entries.close();
  }
  return names.toSorted();
}

async function readNames(entries: Dir, names: string[]): Promise<boolean> {
  for (let count = 0; count < NAMES_BATCH; count += 1) {
    const entry = await entries.read();
    if (!entry) return false;
    names.push(textOfName(entry.name as unknown as Buffer));
  }
  return true;
}

async function entryOf(directory: FileHandle, name: string, path: string): Promise<VolumeFile | undefined> {
  try {
    const place = fdPath(directory, name);
    const stats = await lstat(place);
    return isServed(stats) ? await present(path, stats, () => lstat(place, { bigint: true })) : undefined;
  } catch (error) {
    // Removed since the directory was read.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
