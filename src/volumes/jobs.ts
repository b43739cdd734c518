import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { isRemoved, lockDueVolumes, setRemoved } from './queries.js';

const BATCH = 100;

/**
 * Lets go of the volumes whose time to be restored is over. Accruals stay.
 *
 * The row goes first: while it is locked nobody can restore it, and once it is committed as removed nobody wants the data
 * any more. A crash before the data is gone leaves what `removeLeftData` finds. The other way round a crash would leave
 * a volume that can be restored, with nothing in it.
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

/**
 * Removes the data of purged volumes that is still on this machine: a crash came between, it could not be removed then,
 * or another host purged the volume. Only what the store knows to be removed goes; a directory it knows nothing of stays,
 * as it may belong to another installation.
 */
export async function removeLeftData(ctx: Context, signal: AbortSignal): Promise<void> {
  for (const { orgId, volumeId } of await ctx.volumes.list()) {
    if (signal.aborted) return;
    if (await isRemoved(ctx.pool, orgId, volumeId)) await removeData(ctx, orgId, volumeId);
  }
}

async function removeData(ctx: Context, orgId: string, volumeId: string): Promise<void> {
  try {
    await ctx.volumes.remove(orgId, volumeId);
  } catch (error) {
    ctx.log.error(
      { err: error, orgId, volumeId },
      'the data of a purged volume was not removed; trying again later',
    );
  }
}
