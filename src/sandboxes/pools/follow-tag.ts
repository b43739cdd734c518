import { POOLS } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { addMillis } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { getMembers, lockPool, updatePool } from './queries.js';
import { poolsToCheck, type PoolRef } from './refill-queries.js';
import { removeMembers } from './refill.js';

const EVERY_MS = 600_000;

/**
 * Asks the registry for the tags of pools with `pull_policy: always`. Where a tag moved, the ready sandboxes are
 * removed, and the next ones start from the new image. Other pools follow the image that the engine has: the newest
 * member tells.
 */
export async function followTags(ctx: Context, signal: AbortSignal): Promise<void> {
  if (!ctx.runtime.latestDigest) return;
  for (const ref of await poolsToCheck(ctx.pool, ctx.runtime.name, addMillis(ctx.now(), -EVERY_MS))) {
    if (signal.aborted) return;
    try {
      await follow(ctx, ref, signal);
    } catch (error) {
      ctx.log.debug({ err: error, poolId: ref.poolId }, 'the tag of a pool was not checked');
    }
  }
}

async function follow(ctx: Context, { orgId, poolId }: PoolRef, signal: AbortSignal): Promise<void> {
  const claimed = await inTransaction(ctx.pool, async (tx) => {
    const pool = await lockPool(tx, orgId, { id: poolId });
    // Before the registry answers, so that one that does not answer is asked no more often.
    if (pool) await updatePool(tx, pool, { tag_checked_at: ctx.now() });
    return pool;
  });
  if (!claimed) return;
  const run = {
    orgId,
    sandboxId: newId(),
    runId: newId(),
    name: claimed.name,
    spec: claimed.run_spec,
    secrets: { registry: null, values: {} },
  };
  const digest = await ctx.runtime.latestDigest!(run, signal);
  if (digest === undefined) return;
  await inTransaction(ctx.pool, async (tx) => {
    const pool = await lockPool(tx, orgId, { id: poolId });
    if (!pool?.image_digest || pool.image_digest === digest || pool.run_spec.image !== claimed.run_spec.image)
      return;
    const at = ctx.now();
    const payload = { pool_id: poolId, name: pool.name, previous_digest: pool.image_digest, digest };
    await recordEvent(tx, { orgId, type: 'pool_image_moved', actor: POOLS, resourceId: poolId, at, payload });
    const members = await getMembers(tx, orgId, poolId);
    const old = members.filter(({ image_digest }) => image_digest !== null && image_digest !== digest);
    await removeMembers(tx, pool, old, at);
    await updatePool(tx, pool, { image_digest: null });
  });
}
