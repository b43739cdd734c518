import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import type { CopiedSizes } from '../../volumes/copies.js';
import { listCopiedVolumes, removedCopies, type CopiedVolume } from '../../volumes/copy-queries.js';
import { measureVolume, removeVolumeData } from '../../volumes/engine-storage.js';
import type { ForkRow } from './queries.js';

const CHECK_EVERY_BYTES = 16 * 1024 * 1024;

/** A permanent failure: the same copy would fail again. Users see the message. */
export class VolumeCopyError extends Error {
  readonly code = 'volume_not_copied';
}

/**
 * Fills the volumes of the copies of a sandbox. The source is read once: the further copies are made from the first
 * one. Idempotent: a repeated call begins each volume again.
 */
export async function copyVolumes(
  ctx: Context,
  { org_id: orgId, id }: ForkRow,
  signal: AbortSignal,
): Promise<CopiedSizes> {
  const sizes = new Map<string, number | undefined>();
  const copies = (await listCopiedVolumes(ctx.pool, orgId, id)).filter(({ is_mounted }) => is_mounted);
  for (const source of new Set(copies.map(({ copied_from }) => copied_from))) {
    const targets = copies.filter(({ copied_from }) => copied_from === source);
    const kib = await measureVolume(ctx, orgId, source, signal);
    ctx.disk.check('volumes', (kib ?? 0) * 1024 * targets.length);
    for (const target of targets) {
      const from = target === targets[0] ? source : targets[0]!.id;
      await fill(ctx, orgId, from, target, signal);
      sizes.set(target.id, await measureVolume(ctx, orgId, target.id, signal));
    }
  }
  return sizes;
}

async function fill(
  ctx: Context,
  orgId: string,
  from: string,
  { id: to, name, capacity_gib: capGib }: CopiedVolume,
  signal: AbortSignal,
): Promise<void> {
  let unchecked = 0;
  // The source may grow while it is copied.
  const onBytes = (bytes: number) => {
    unchecked += bytes;
    if (unchecked < CHECK_EVERY_BYTES) return;
    unchecked = 0;
    ctx.disk.check('volumes');
  };
  try {
    await ctx.volumes.fill(orgId, { from, to, capGib }, { onBytes, signal });
  } catch (cause) {
    if (signal.aborted || cause instanceof ApiError) throw cause;
    ctx.log.error({ err: cause, orgId, volumeId: to }, 'cannot copy the files of a volume for a fork');
    throw new VolumeCopyError(`the volume "${name}" could not be filled: ${reasonOf(cause as Error)}`, {
      cause,
    });
  }
}

/** The words of tar(1) have paths of the machine. */
function reasonOf({ message }: Error): string {
  if (/no space left|quota exceeded/i.test(message))
    return 'the files of its source do not fit: raise the cap of the source, or remove files';
  if (/permission denied|not permitted/i.test(message))
    return 'the service may not read all files of its source: ask the operator for its log';
  return 'ask the operator for the log of the service';
}

/** Removes the data of volumes that are not needed any more. A failure leaves it to the job for such data. */
export async function removeDroppedVolumes(ctx: Context, { org_id: orgId, id }: ForkRow): Promise<void> {
  for (const volumeId of await removedCopies(ctx.pool, orgId, id))
    await removeVolumeData(ctx, orgId, volumeId);
}
