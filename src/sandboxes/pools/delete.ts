import type { Caller } from '../../access/caller.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { getMembers, lockPool, updatePool } from './queries.js';
import { removeMembers } from './refill.js';
import { refuseNarrowed } from './whole-organization.js';

/** Deletes a pool and the sandboxes that no create has taken. Those that it gave away stay. */
export async function deletePool(ctx: Context, caller: Caller, name: string): Promise<{ message: string }> {
  refuseNarrowed(caller);
  const { orgId, actor } = caller;
  return inTransaction(ctx.pool, async (tx) => {
    const pool = await lockPool(tx, orgId, { name });
    if (!pool) throw new ApiError('pool_not_found');
    const at = ctx.now();
    await updatePool(tx, pool, { removed_at: at });
    const payload = { pool_id: pool.id, name };
    await recordEvent(tx, { orgId, type: 'pool_deleted', actor, resourceId: pool.id, at, payload });
    await removeMembers(tx, pool, await getMembers(tx, orgId, pool.id), at);
    return { message: `the pool "${name}" is deleted` };
  });
}
