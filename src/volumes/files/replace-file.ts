import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { lstat, open, readdir, rename, unlink, type FileHandle } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { fdPath } from '../storage/guest-path.js';
import { canonical } from './entry.js';
import { findWritableVolume, type VolumeTarget } from './target.js';

const NEW_FILE_MODE = 0o666;
/** A crash left uploads that are older. */
const STALE_AFTER_MS = 24 * 60 * 60 * 1000;

/**
 * Atomic: `fill` writes outside of the guests' view. The new file has the permissions of the replaced one, without
 * setuid and setgid, or those of `like`.
 */
export async function replaceFile(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  fill: (file: FileHandle) => Promise<void>,
  like?: Stats,
): Promise<void> {
  const { orgId, volumeId } = target;
  const incoming = await ctx.volumes.openIncoming(orgId, volumeId);
  const temporary = fdPath(incoming, randomUUID());
  try {
    await removeStaleUploads(incoming);
    const file = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
    try {
      await fill(file);
      // The volume may have been deleted during the upload.
      await findWritableVolume(ctx, target);
      const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path, { make: true });
      try {
        if (name === undefined)
          throw new ApiError('invalid_volume_path', 'the top of the volume is a directory');
        const replaced = await lstat(fdPath(parent, name)).catch(() => undefined);
        if (replaced?.isDirectory() === true) {
          throw new ApiError('volume_file_exists', `${canonical(path)} is a directory`);
        }
        await keepPermissions(file, replaced?.isFile() === true ? replaced : undefined, like);
        // The answer promises the file, also after a power failure.
        await file.datasync();
        await rename(temporary, fdPath(parent, name));
        await parent.sync();
      } finally {
        await parent.close();
      }
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      throw error;
    } finally {
      await file.close();
    }
  } finally {
    await incoming.close();
  }
}

async function keepPermissions(file: FileHandle, replaced?: Stats, like?: Stats): Promise<void> {
  // Only root can change the owner.
  if (replaced) await file.chown(replaced.uid, replaced.gid).catch(() => undefined);
  const mode = (replaced ?? like)?.mode;
  await file.chmod(mode === undefined ? NEW_FILE_MODE : mode & 0o777);
}

async function removeStaleUploads(incoming: FileHandle): Promise<void> {
  for (const name of await readdir(fdPath(incoming))) {
    const path = fdPath(incoming, name);
    const stats = await lstat(path).catch(() => undefined);
    if (stats && Date.now() - stats.mtimeMs > STALE_AFTER_MS) await unlink(path).catch(() => undefined);
  }
}
