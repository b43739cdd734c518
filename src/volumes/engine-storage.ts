import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { VolumeRow } from './queries.js';

/** In KiB: the data on this machine, and the storage that the engine has allocated. Undefined: there is neither. */
export async function measureVolume(
  ctx: Context,
  orgId: string,
  volumeId: string,
  signal: AbortSignal,
): Promise<number | undefined> {
  const allocated = ctx.runtime.volumes?.allocatedKib(volumeId);
  const here = await ctx.volumes.measure(orgId, volumeId, signal);
  return allocated === undefined ? here : allocated + (here ?? 0);
}

/** Idempotent: a purge that was killed calls it again. */
export async function removeVolumeData(ctx: Context, orgId: string, volumeId: string): Promise<void> {
  await ctx.volumes.remove(orgId, volumeId);
  await ctx.runtime.volumes?.remove(orgId, volumeId);
}

/** Storage that exists does not shrink. */
export async function checkNewCap(
  ctx: Context,
  orgId: string,
  { id, capacity_gib: before, used_bytes: usedBytes }: VolumeRow,
  capGib: number | null,
  mounting: readonly string[],
): Promise<void> {
  const refuse = (message: string, details = {}) => {
    throw new ApiError('invalid_request', message, { field: 'capacity_gib', ...details });
  };
  const kib = ctx.runtime.volumes?.requestedKib(id);
  if (kib !== undefined && capGib !== null && kib > capGib * KIB_OF_GIB) {
    const gib = Math.ceil(kib / KIB_OF_GIB);
    refuse(
      `the ${ctx.runtime.name} runtime has allocated ${gib} GiB for the volume, and cannot shrink it: give that or more`,
    );
  }
  if (ctx.runtime.volumes !== undefined) return;
  const diskGib = await ctx.volumes.diskGib(orgId, id);
  if (diskGib !== undefined) {
    if (capGib === null) {
      refuse(`the volume is a disk of ${diskGib} GiB, so its cap cannot be removed: raise it instead`);
    } else if (capGib < diskGib) {
      refuse(`the volume is a disk of ${diskGib} GiB, which cannot shrink: give that or more`);
    }
    return;
  }
  if (!ctx.volumes.makesDisks) return;
  if ((before === null || capGib === null) && mounting.length > 0) {
    refuse(
      `the files of a volume move when it gets its first cap or loses it, and ${mounting.join(', ')} mount it: delete these sandboxes first, or create a volume with the cap`,
      { sandboxes: mounting },
    );
  }
  const usedGib = Math.ceil((usedBytes ?? 0) / GIB);
  if (capGib !== null && usedGib > capGib) {
    refuse(
      `the volume has files of ${usedGib} GiB by the latest reading: give more than that, or remove files`,
    );
  }
}

/** After the commit: a failure leaves less than the cap, and the next start or upload tries again. */
export async function growStorage(
  ctx: Context,
  orgId: string,
  { id, capacity_gib: capGib }: VolumeRow,
): Promise<void> {
  try {
    if ((await ctx.volumes.diskGib(orgId, id)) !== undefined) await ctx.volumes.holdToCap(orgId, id, capGib);
  } catch (error) {
    ctx.log.warn(
      { err: error, orgId, volumeId: id },
      'cannot grow the disk of a volume; retrying at its next use',
    );
  }
}

const GIB = 1024 ** 3;
const KIB_OF_GIB = 1024 * 1024;

/** Only Pods of the engine reach its storage. */
export function refuseFilesInEngine(ctx: Context): void {
  if (ctx.runtime.volumes === undefined) return;
  throw new ApiError(
    'not_supported',
    `the files of volumes are in the storage of the ${ctx.runtime.name} runtime: mount the volume in a sandbox, and use the files of that sandbox`,
  );
}
