import { isDeepStrictEqual } from 'node:util';
import type { Caller } from '../../access/caller.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import { violatedConstraint } from '../../db/pool.js';
import { inTransaction, Overtaken, type EventSql } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { newId } from '../../lib/uuid.js';
import { getLimits, lockQuotas } from '../../quotas/queries.js';
import { NAME_RULE, SANDBOX_NAME } from '../../spec/names.js';
import { presentPool } from './present.js';
import {
  countPools,
  getMembers,
  getPool,
  insertPool,
  lockPool,
  updatePool,
  type PoolRow,
} from './queries.js';
import { removeMembers } from './refill.js';
import { MOST_POOLS, type PoolResponse, type PutPoolRequest } from './schema.js';
import { checkTemplate, isSameSpec, memberSpec } from './template.js';
import { refuseNarrowed } from './whole-organization.js';

/**
 * Creates a pool, or makes it as asked. Members with another specification are replaced; with a smaller size some are
 * removed, and with a larger one more are added, both soon after the answer.
 */
export async function putPool(
  ctx: Context,
  caller: Caller,
  name: string,
  { size, most = null, ...template }: PutPoolRequest,
): Promise<PoolResponse> {
  refuseNarrowed(caller);
  if (!SANDBOX_NAME.test(name)) throw new ApiError('invalid_request', NAME_RULE, { field: 'name' });
  if (most !== null && most < size) {
    throw new ApiError('invalid_request', 'most is at least size, or null for no limit', { field: 'most' });
  }
  if (ctx.runtime.placesRuns === true && size > 0) refuseCluster(ctx.runtime.name);
  checkTemplate(name, template, ctx.runtime);
  return inTransaction(ctx.pool, async (tx) => {
    const pool = await lockPool(tx, caller.orgId, { name });
    const limits = await getLimits(tx, caller.orgId);
    if (!limits) throw new ApiError('org_not_found');
    const { runSpec, spec } = memberSpec({ name, request: template }, limits, ctx.runtime);
    const wanted = { request: template, run_spec: runSpec, spec, size, most, runtime: ctx.runtime.name };
    // Wakes the loop that fills it.
    await announceChange(tx, pool?.id ?? name);
    await (pool ? change(ctx, tx, caller, pool, wanted) : create(ctx, tx, caller, name, wanted));
    return presentPool((await getPool(tx, caller.orgId, name))!);
  });
}

/** A cluster moves and ends Pods by rules of its own, and pools are not tested on one. A pool of size 0 rests. */
function refuseCluster(runtime: string): never {
  const message = `the ${runtime} runtime keeps no sandboxes ready: create them without a pool`;
  throw new ApiError('not_supported', message, { field: 'size' });
}

type Wanted = Pick<PoolRow, 'request' | 'run_spec' | 'spec' | 'size' | 'most' | 'runtime'>;

async function create(
  ctx: Context,
  tx: EventSql,
  { orgId, actor }: Caller,
  name: string,
  wanted: Wanted,
): Promise<void> {
  // Concurrent requests see each other's pools.
  await lockQuotas(tx, orgId, 'exclusive');
  const count = await countPools(tx, orgId);
  if (count >= MOST_POOLS) {
    throw new ApiError('quota_exceeded', `an organization has at most ${MOST_POOLS} pools`, {
      limit: MOST_POOLS,
      used: count,
    });
  }
  const at = ctx.now();
  const id = newId();
  const { size, most, run_spec } = wanted;
  try {
    await insertPool(tx, { org_id: orgId, id, name, created_at: at, updated_at: at, ...wanted });
  } catch (error) {
    // A concurrent request created it first: the next attempt changes it.
    if (violatedConstraint(error) === 'pools_name') throw new Overtaken('the pool exists by now');
    throw error;
  }
  const payload = { pool_id: id, name, size, most, image: run_spec.image };
  await recordEvent(tx, { orgId, type: 'pool_created', actor, resourceId: id, at, payload });
}

async function change(
  ctx: Context,
  tx: EventSql,
  { orgId, actor }: Caller,
  pool: PoolRow,
  wanted: Wanted,
): Promise<void> {
  const isSame = isSameSpec(wanted.run_spec, pool.run_spec) && wanted.runtime === pool.runtime;
  const isUnchanged =
    isSame &&
    wanted.size === pool.size &&
    wanted.most === pool.most &&
    isDeepStrictEqual(wanted.request, pool.request);
  const at = ctx.now();
  // A refill that failed may work now.
  const retry = { next_refill_at: at, failures: 0, last_failure_message: null };
  if (isUnchanged) {
    if (pool.failures > 0) await updatePool(tx, pool, retry);
    return;
  }
  await updatePool(tx, pool, {
    ...wanted,
    updated_at: at,
    ...retry,
    ...(isSame ? {} : { image_digest: null }),
  });
  const payload = { pool_id: pool.id, name: pool.name, before: stateOf(pool), after: stateOf(wanted) };
  await recordEvent(tx, { orgId, type: 'pool_changed', actor, resourceId: pool.id, at, payload });
  if (!isSame) await removeMembers(tx, pool, await getMembers(tx, orgId, pool.id), at);
}

function stateOf({
  size,
  most,
  run_spec: { image, vcpus, memoryMib },
}: Pick<PoolRow, 'size' | 'most' | 'run_spec'>) {
  return { size, most, image, vcpus, memory_mib: memoryMib };
}
