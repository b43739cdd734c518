import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { RECONCILER } from '../events/actor.js';
import { recordEvent } from '../events/record.js';
import { lockDueVolumes, setRemoved } from './queries.js';

const BATCH = 100;

/** Lets go of the volumes whose time to be restored is over. Accruals stay. */
export async function purgeDueVolumes(ctx: Context, signal: AbortSignal): Promise<void> {
  let purged: number;
  do {
    purged = await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const due = await lockDueVolumes(tx, at, BATCH);
      for (const { org_id: orgId, id, name } of due) {
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
      return due.length;
    });
  } while (purged === BATCH && !signal.aborted);
}
