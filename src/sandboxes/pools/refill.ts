import { FULL_ACCESS } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import { POOLS } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import { isUnreachable } from '../../db/pool.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import { WriteBatch } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import { randomBase62 } from '../../lib/base62.js';
import { addMillis, microsOf, type Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { getLimits } from '../../quotas/queries.js';
import { reserve } from '../../quotas/reserve.js';
import { insertRun } from '../../runs/queries.js';
import { makeSlug } from '../admission/make-slug.js';
import { removeSandbox } from '../lifecycle/destroy.js';
import { nextRunOf } from '../lifecycle/next-run.js';
import { admittedRun } from '../lifecycle/request-run.js';
import { insertSandbox } from '../queries.js';
import { SANDBOX } from '../row.js';
import {
  getFailures,
  getMembers,
  lockMember,
  lockPool,
  updatePool,
  type Member,
  type PoolRow,
} from './queries.js';
import { poolsToTend, readStarts, type PoolRef, type Starts } from './refill-queries.js';
import { isSameSpec, memberSpec } from './template.js';

/** So many pools are tended in a pass. */
const BATCH = 200;
/** The members that start at once: others start their own sandboxes beside them. */
export const STARTS = { ofPool: 4, ofOrg: 6, ofAll: 16 };
/** A member without a place makes room for the starts of callers. */
const WAITS_FOR_ROOM_MS = 30_000;
const FIRST_BACKOFF_MS = 1_000;
const LONGEST_BACKOFF_MS = 300_000;
/** Longer than the longest pause, so that a pool whose image never stays the same keeps that pause. */
const MOVES_AGAIN_MS = 2 * LONGEST_BACKOFF_MS;

/** Brings the pools to their sizes. Returns whether there are any pools. */
export async function refillPools(ctx: Context, signal: AbortSignal): Promise<boolean> {
  if (ctx.runtime.engine?.state === 'connecting') return false;
  const { due, exist } = await poolsToTend(ctx.pool, ctx.runtime.name, ctx.now(), BATCH);
  for (const ref of due) {
    if (signal.aborted) break;
    try {
      await tendPool(ctx, ref);
    } catch (error) {
      if (isUnreachable(error)) throw error;
      // The pools of others are filled all the same.
      ctx.log.error({ err: error, ...ref }, 'a pool could not be refilled');
      await backOff(ctx, ref);
    }
  }
  return exist;
}

/** The failed attempt was undone, with the time that puts the pool behind the others. */
async function backOff(ctx: Context, { orgId, poolId }: PoolRef): Promise<void> {
  const failures = await getFailures(ctx.pool, orgId, poolId);
  const at = ctx.now();
  const message = 'the pool could not be refilled, and is tried again: the log of the service has the error';
  const change = { refilled_at: at, ...failed({ failures }, message, at) };
  await updatePool(ctx.pool, { org_id: orgId, id: poolId }, change);
}

/**
 * Removes members that ended, that have another image than the newest one, and those beyond the size; then adds some.
 * The lock of the pool serializes this, so concurrent passes add no member twice. Creates lock members alone: while
 * they take them, the pool has fewer members than this counts, never more.
 */
async function tendPool(ctx: Context, ref: PoolRef): Promise<void> {
  await inTransaction(ctx.pool, async (tx) => {
    const pool = await lockPool(tx, ref.orgId, { id: ref.poolId });
    if (!pool) return;
    const at = ctx.now();
    const members = await getMembers(tx, ref.orgId, ref.poolId);
    const digest = newestDigest(members) ?? pool.image_digest;
    const spec = await changedSpec(ctx, tx, pool);
    const ended = members.filter(({ status }) => status !== 'starting' && status !== 'running');
    const live = members.filter((member) => !ended.includes(member));
    const isStale = ({ status, image_digest }: Member) =>
      status === 'running' && image_digest !== null && image_digest !== digest;
    const stale = spec ? live : live.filter(isStale);
    const current = live.filter((member) => !stale.includes(member));
    // Members that start go first: they cost the least.
    const surplus = current.toSorted(startingFirst).slice(0, Math.max(0, current.length - pool.size));
    const kept = current.length - surplus.length;
    const starts = await readStarts(tx, ref, pool.runtime);
    const change = { refilled_at: at, ...spec, ...afterMembers(pool, { ended, current, digest }, at) };
    const mayAdd = (change.next_refill_at ?? pool.next_refill_at) <= at;
    const count = mayAdd ? membersToAdd(pool, kept, starts) : 0;
    // All rows are locked before the quotas are.
    await removeMembers(tx, pool, [...ended, ...stale, ...surplus], at);
    try {
      for (let added = 0; added < count; added += 1) await addMember(ctx, tx, pool, at);
      await updatePool(tx, pool, change);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // The refusal of a quota wrote nothing. Those that were added stay.
      await updatePool(tx, pool, { ...change, ...failed(pool, error.message, at) });
    }
  });
}

function newestDigest(members: readonly Member[]): string | undefined {
  const running = members.filter(
    ({ status, started_at, image_digest }) =>
      status === 'running' && started_at !== null && image_digest !== null,
  );
  const [newest] = running.toSorted((a, b) => (a.started_at! < b.started_at! ? 1 : -1));
  return newest?.image_digest ?? undefined;
}

function startingFirst(a: Member, b: Member): number {
  return Number(a.status === 'running') - Number(b.status === 'running');
}

function membersToAdd({ size, most }: PoolRow, kept: number, starts: Starts): number {
  if (starts.isShort) return 0;
  const room = [
    size - kept,
    STARTS.ofPool - starts.ofPool,
    STARTS.ofOrg - starts.ofOrg,
    STARTS.ofAll - starts.ofAll,
    ...(most === null ? [] : [most - starts.running]),
  ];
  return Math.max(0, Math.min(...room));
}

type Change = Parameters<typeof updatePool>[2];

function afterMembers(
  pool: PoolRow,
  { ended, current, digest }: { ended: readonly Member[]; current: readonly Member[]; digest: string | null },
  at: Instant,
): Change {
  const change = moved(pool, digest, at);
  const refused = ended.find(
    ({ status, last_failure_message }) => status === 'failed' && last_failure_message,
  );
  if (refused) return { ...change, ...failed(pool, refused.last_failure_message!, at) };
  const isBack = pool.size === 0 || current.some(({ status }) => status === 'running');
  const works = pool.failures > 0 && pool.next_refill_at <= at && isBack;
  return works ? { ...change, failures: 0, last_failure_message: null } : change;
}

/**
 * The nodes of an engine may hold different images of one tag, and then each added member may replace the others. A
 * digest that moves again doubles the time to the next addition.
 */
function moved(pool: PoolRow, digest: string | null, at: Instant): Change {
  const { image_digest, image_moved_at, failures } = pool;
  if (digest === image_digest) return {};
  if (image_digest === null) return { image_digest: digest };
  const change = { image_digest: digest, image_moved_at: at };
  const sinceMs =
    image_moved_at === null ? Infinity : Number(microsOf(at) - microsOf(image_moved_at)) / 1_000;
  if (sinceMs > MOVES_AGAIN_MS) return change;
  const pause = Math.min(Math.max(FIRST_BACKOFF_MS, Math.ceil(2 * sinceMs)), LONGEST_BACKOFF_MS);
  return {
    ...change,
    // The first refill after the pause clears the message.
    failures: Math.max(1, failures),
    last_failure_message:
      'started sandboxes had different digests of the image: the pool waits longer before it replaces more',
    next_refill_at: addMillis(at, pause),
  };
}

function failed({ failures }: Pick<PoolRow, 'failures'>, message: string, at: Instant): Change {
  const pause = Math.min(FIRST_BACKOFF_MS * 2 ** Math.min(failures, 20), LONGEST_BACKOFF_MS);
  return { failures: failures + 1, last_failure_message: message, next_refill_at: addMillis(at, pause) };
}

/** Deletes members that no create has taken meanwhile. */
export async function removeMembers(
  tx: EventSql,
  { org_id }: Pick<PoolRow, 'org_id'>,
  members: readonly Pick<Member, 'id'>[],
  at: Instant,
): Promise<void> {
  // In one order, against deadlocks with the records of the reconciler.
  for (const { id } of members.toSorted((a, b) => (a.id < b.id ? -1 : 1))) {
    const member = await lockMember(tx, org_id, id);
    if (member) await removeSandbox(tx, member, 'pool', POOLS, at);
  }
}

async function addMember(ctx: Context, tx: EventSql, pool: PoolRow, at: Instant): Promise<void> {
  const { org_id: orgId, id: poolId } = pool;
  const caller: Caller = { orgId, actor: POOLS, access: FULL_ACCESS };
  const limits = await reserve(ctx, tx, caller, {
    sandbox: true,
    start: { ephemeral: false, at, labels: {} },
  });
  const { runSpec, spec } = memberSpec(pool, limits, ctx.runtime);
  const id = newId();
  const created = {
    ...SANDBOX.initial,
    org_id: orgId,
    id,
    name: `${pool.name.slice(0, 100)}.${randomBase62(12)}`,
    slug: makeSlug(),
    status: 'created',
    ephemeral: false,
    created_at: at,
    spec,
    runtime: ctx.runtime.name,
  } as const;
  const next = nextRunOf(runSpec, limits, POOLS, addMillis(at, WAITS_FOR_ROOM_MS));
  const { admitted, run } = admittedRun(created, next, at);
  const batch = new WriteBatch(tx);
  await insertRun(batch, run);
  await insertSandbox(batch, {
    ...created,
    ...admitted,
    run_spec: runSpec,
    changed_at: at,
    pool_id: poolId,
  });
  await recordEvent(batch, {
    orgId,
    type: 'pool_sandbox_added',
    actor: POOLS,
    resourceId: id,
    at,
    payload: {
      pool_id: poolId,
      name: pool.name,
      sandbox_id: id,
      sandbox_name: created.name,
      run_id: run.id,
      image: runSpec.image,
    },
  });
  await announceChange(batch, id);
  await batch.send();
}

/** The specification of members follows the limits of the organization. Undefined: it is as before. */
async function changedSpec(
  ctx: Context,
  tx: EventSql,
  pool: PoolRow,
): Promise<Pick<Change, 'spec' | 'run_spec'> | undefined> {
  const limits = await getLimits(tx, pool.org_id);
  if (!limits) return undefined;
  try {
    const { runSpec, spec } = memberSpec(pool, limits, ctx.runtime);
    return isSameSpec(runSpec, pool.run_spec) ? undefined : { run_spec: runSpec, spec };
  } catch (error) {
    // Nothing of this size is allowed any more, which the next addition says.
    if (error instanceof ApiError) return undefined;
    throw error;
  }
}
