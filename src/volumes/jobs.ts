import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { removeVolumeData } from './engine-storage.js';
import { isRemoved, lockDueVolumes, setRemoved } from './queries.js';

const BATCH = 100;

/**
 * Removes rows before data. A crash in between leaves data for `removeLeftData`; the reverse could restore an empty
 * volume.
 */
export async function purgeDueVolumes(ctx: Context, signal: AbortSignal): Promise<void> {
  let purged: number;
  do {
    const due = await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const volumes = await lockDueVolumes(tx, at, BATCH);
      for (const { org_id: orgId, id, name } of volumes) {
        await setRemoved(tx, orgId, id, at);
        await recordEvent(tx, {
          orgId,
          type: 'volume_purged',
          actor: RECONCILER,
          resourceId: id,
          at,
          payload: { volume_id: id, name },
        });
      }
      return volumes;
    });
    for (const { org_id: orgId, id } of due) await removeData(ctx, orgId, id);
    purged = due.length;
  } while (purged === BATCH && !signal.aborted);
}

/** Unknown directories and claims stay: they may belong to another installation. */
export async function removeLeftData(ctx: Context, signal: AbortSignal): Promise<void> {
  const found = [...(await ctx.volumes.list()), ...(ctx.runtime.volumes?.list() ?? [])];
  for (const { orgId, volumeId } of found) {
    if (signal.aborted) return;
    if (await isRemoved(ctx.pool, orgId, volumeId)) await removeData(ctx, orgId, volumeId);
  }
}

async function removeData(ctx: Context, orgId: string, volumeId: string): Promise<void> {
  try {
    await removeVolumeData(ctx, orgId, volumeId);
  } catch (error) {
    ctx.log.error(
      { err: error, orgId, volumeId },
      'cannot remove the data of a purged volume; retrying later',
    );
  }
}
