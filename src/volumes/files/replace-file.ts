import { randomUUID } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { lstat, open, readdir, rename, unlink, type FileHandle } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { exactProduct } from '../../lib/exact-json.js';
import type { VolumeRow } from '../queries.js';
import type { Account } from '../storage/cap-ledger.js';
import { Growth } from '../storage/growth.js';
import { fdPath } from '../storage/guest-path.js';
import { allocatedBytes, canonical } from './entry.js';
import { stepsOf } from './steps.js';
import { findWritableVolume, type VolumeTarget } from './target.js';

const NEW_FILE_MODE = 0o666;
/** A crash left uploads that are older. */
const STALE_AFTER_MS = 24 * 60 * 60 * 1000;
const GIB = 1024 ** 3;

export interface Replacement extends VolumeTarget {
  volume: VolumeRow;
  path: string;
  abandoned: AbortSignal;
  like?: Stats;
  previous?: Stats | undefined;
}

/**
 * Atomic: `fill` writes outside of the guests' view. The new file has the permissions of the replaced one, without
 * setuid and setgid, or those of `like`.
 */
export async function replaceFile(
  ctx: Context,
  replacement: Replacement,
  fill: (file: FileHandle, growth: Growth) => Promise<void>,
): Promise<void> {
  const { orgId, volumeId, volume, abandoned } = replacement;
  ctx.disk.check('volumes');
  const incoming = await ctx.volumes.openIncoming(orgId, volumeId);
  const temporary = fdPath(incoming, randomUUID());
  let account: Account | undefined;
  const step = stepsOf(ctx, replacement, abandoned, () => findWritableVolume(ctx, replacement));
  let taken = 0;
  const growth = new Growth(step, (bytes) => {
    ctx.disk.take('volumes', bytes);
    taken += bytes;
    if (account?.take(bytes) === false) throw overCap(volume);
  });
  let kept = false;
  try {
    account = await openAccount(ctx, replacement);
    await removeStaleUploads(incoming);
    const file = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
    try {
      await fill(file, growth);
      await publish(ctx, replacement, { file, temporary, step });
      kept = true;
    } catch (error) {
      await ctx.volumes.pieces.run(orgId, () => unlink(temporary)).catch(() => undefined);
      throw error;
    } finally {
      await file.close();
    }
  } finally {
    account?.close({ kept });
    if (!kept) ctx.disk.giveBack('volumes', taken);
    await incoming.close();
  }
}

async function publish(
  ctx: Context,
  { orgId, volumeId, path, like }: Replacement,
  { file, temporary, step }: { file: FileHandle; temporary: Buffer; step: Growth['step'] },
): Promise<void> {
  // The volume may have been deleted during the upload.
  await findWritableVolume(ctx, { orgId, volumeId });
  const { parent, name } = await ctx.volumes.openParent(orgId, volumeId, path, { make: true });
  try {
    if (name === undefined) throw new ApiError('invalid_volume_path', 'the top of the volume is a directory');
    const replaced = await lstat(fdPath(parent, name)).catch(() => undefined);
    if (replaced?.isDirectory() === true) {
      throw new ApiError('volume_file_exists', `${canonical(path)} is a directory`);
    }
    await keepPermissions(file, replaced?.isFile() === true ? replaced : undefined, like);
    // The answer promises the file, also after a power failure.
    await step(() => file.datasync());
    await step(async () => {
      await rename(temporary, fdPath(parent, name));
      await parent.sync();
    });
  } finally {
    await parent.close();
  }
}

async function openAccount(
  ctx: Context,
  { orgId, volumeId, volume, previous }: Replacement,
): Promise<Account | undefined> {
  if (volume.capacity_gib === null) return undefined;
  return ctx.volumes.caps.open(
    { orgId, volumeId },
    {
      capBytes: volume.capacity_gib * GIB,
      lastKnownBytes: volume.used_bytes ?? 0,
      replacedBytes: previous?.isFile() === true ? allocatedBytes(previous) : 0,
    },
  );
}

export function overCap({ capacity_gib }: VolumeRow): ApiError {
  return new ApiError('storage_full', 'the volume has no room for it under its cap', {
    capacity_bytes: exactProduct(capacity_gib!, GIB),
  });
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
