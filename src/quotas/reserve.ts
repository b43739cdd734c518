import type { Sql } from '../db/pool.js';
import type { Caller } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { isNarrowed } from '../keys/access.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import type { RunSpec } from '../runtimes/runtime.js';
import { exhaustedPool, hasWall, storageLimit, type Limit, type Limits } from './limits.js';
import { countRunning, countSandboxes, getLimits, lockLimits, poolUsage, sumOfCaps } from './queries.js';

/** What a transaction is about to take. */
export interface Reservation {
  /** One more sandbox. */
  sandbox?: true;
  /** One more that runs. */
  start?: { ephemeral: boolean; at: Instant };
  /** A volume whose cap becomes `gib`, and was `before` (0 for a new one or one without a cap). */
  cap?: { gib: number; before: number };
}

/**
 * Refuses what the quotas of the organization do not allow. What is allowed stays so until the transaction ends: the row
 * of the quotas is held, when one of them matters here, so that of many requests at once each counts what those before
 * it have taken. Without such a limit nothing is locked and nobody waits.
 *
 * To be called after the rows of sandboxes and volumes are locked and before any is written: all take the locks in this
 * order.
 */
export async function reserve(tx: Sql, caller: Caller, wanted: Reservation): Promise<Limits> {
  const { orgId } = caller;
  const counted = countedBy(wanted);
  const limits = await getLimits(tx, orgId);
  if (!limits) throw new ApiError('org_not_found');
  if (wanted.start) await refuseStart(tx, caller, limits, wanted.start.at);
  if (counted.every(({ quota }) => limitOf(limits, quota) === null)) return limits;
  // A look without the lock: who does not fit need not queue, and holds up nobody who does.
  await check(limits);
  const held = await lockLimits(tx, orgId);
  if (!held) throw new ApiError('org_not_found');
  await check(held);
  return held;

  async function check(current: Limits): Promise<void> {
    for (const { quota, more, count } of counted) {
      const limit = limitOf(current, quota);
      if (limit === null) continue;
      const used = await count(tx);
      if (used + more > limit) {
        refuseTotal(caller, quota, limit, used, `the organization uses ${used} of at most ${limit}`);
      }
    }
  }

  function countedBy({ sandbox, start, cap }: Reservation) {
    const list: { quota: Limit; more: number; count: (sql: Sql) => Promise<number> }[] = [];
    if (sandbox) list.push({ quota: 'max_sandboxes', more: 1, count: (sql) => countSandboxes(sql, orgId) });
    if (start) {
      const { ephemeral } = start;
      const quota = ephemeral ? 'max_concurrent_ephemeral_running' : 'max_concurrent_persistent_running';
      list.push({ quota, more: 1, count: (sql) => countRunning(sql, orgId, ephemeral) });
    }
    // A cap that shrinks is always allowed, also where a limit was lowered below what there is.
    if (cap && cap.gib > cap.before) {
      const more = cap.gib - cap.before;
      list.push({ quota: 'max_total_storage_gib', more, count: (sql) => sumOfCaps(sql, orgId) });
    }
    return list;
  }
}

function limitOf(limits: Limits, quota: Limit): number | null {
  return quota === 'max_total_storage_gib' ? storageLimit(limits) : limits[quota];
}

/** Refuses a sandbox that is larger than one of the organization may be. */
export function checkSize(
  limits: Limits,
  { vcpus, memoryMib, diskMib }: Pick<RunSpec, 'vcpus' | 'memoryMib' | 'diskMib'>,
): void {
  const sizes = [
    ['max_vcpus_per_sandbox', vcpus],
    ['max_memory_mib_per_sandbox', memoryMib],
    ['max_disk_size_mib_per_sandbox', diskMib],
  ] as const;
  for (const [quota, size] of sizes) {
    const limit = limits[quota];
    if (limit === null || (size !== null && size <= limit)) continue;
    if (size === null) refuse(quota, limit, null, `its disk has no size, and ${limit} MiB are allowed`);
    refuse(quota, limit, size, `the sandbox has ${size}, and ${limit} are allowed`);
  }
}

/** Refuses a disk of unlimited size, where a limit is set that nothing would enforce. */
export function refuseUnlimitedDisk(limit: number, runtime: string): never {
  const why = `the ${runtime} runtime cannot limit the size of a disk`;
  refuse('max_disk_size_mib_per_sandbox', limit, null, limit === 0 ? 'no disk is allowed' : why);
}

/** The longest a run may take, in seconds: the smaller of what was asked for and what is allowed. Null is for ever. */
export function effectiveDuration(
  { max_uptime_minutes_per_sandbox: minutes }: Limits,
  wantedSecs: number | null,
): number | null {
  if (minutes === null) return wantedSecs;
  return wantedSecs === null ? minutes * 60 : Math.min(minutes * 60, wantedSecs);
}

async function refuseStart(tx: Sql, caller: Caller, limits: Limits, at: Instant): Promise<void> {
  if (limits.is_suspended) {
    const details = { quota: 'is_suspended', limit: null, used: null };
    throw new ApiError(
      'quota_exceeded',
      'the organization is suspended: nothing of it can be started',
      details,
    );
  }
  if (!hasWall(limits)) return;
  const pool = exhaustedPool(limits, await poolUsage(tx, caller.orgId, startOfMonth(at), at));
  if (!pool) return;
  refuseTotal(
    caller,
    pool.quota,
    pool.limit,
    pool.used,
    `the ${pool.limit} hours of this month are used up, until the next UTC month nothing can be started`,
  );
}

/** How much all of the organization has is not for a key that sees a part of it, and the limit that was reached would tell. */
function refuseTotal({ access }: Caller, quota: Limit, limit: number, used: number, what: string): never {
  if (isNarrowed(access)) refuse(quota, null, null, 'the organization has used it up');
  refuse(quota, limit, used, what);
}

function refuse(quota: Limit, limit: number | null, used: number | null, what: string): never {
  throw new ApiError('quota_exceeded', `${quota}: ${what}`, { quota, limit, used });
}
