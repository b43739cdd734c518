import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';

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

export async function removeVolumeData(ctx: Context, orgId: string, volumeId: string): Promise<void> {
  await ctx.volumes.remove(orgId, volumeId);
  await ctx.runtime.volumes?.remove(orgId, volumeId);
}

export function refuseShrinking(ctx: Context, volumeId: string, capGib: number): void {
  const kib = ctx.runtime.volumes?.requestedKib(volumeId);
  if (kib === undefined || kib <= capGib * KIB_OF_GIB) return;
  const gib = Math.ceil(kib / KIB_OF_GIB);
  throw new ApiError(
    'invalid_request',
    `the ${ctx.runtime.name} runtime has allocated ${gib} GiB for the volume, and cannot shrink it: give that or more`,
    { field: 'capacity_gib' },
  );
}

const KIB_OF_GIB = 1024 * 1024;

export function refuseFilesInEngine(ctx: Context): void {
  if (ctx.runtime.volumes === undefined) return;
  throw new ApiError(
    'not_supported',
    `the files of volumes are in the storage of the ${ctx.runtime.name} runtime: mount the volume in a sandbox, and use the files of that sandbox`,
  );
}
