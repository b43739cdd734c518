import { isNarrowed } from '../access/access.js';
import type { Caller } from '../access/caller.js';
import type { Sql } from '../db/pool.js';
import { Overtaken } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import type { RunSpec } from '../runtimes/runtime.js';
import { exhaustedPool, canExhaustPool, storageLimit, type Limit, type Limits } from './limits.js';
import { compactCounts, getQuotas, lockQuotas, poolUsage, sumOfCaps, type QuotaRow } from './queries.js';

/** What a transaction is about to take. */
export interface Reservation {
  /** One more sandbox. */
  sandbox?: true;
  /** One more that runs. `hasPlace`: it follows one that runs and is counted already. */
  start?: { ephemeral: boolean; at: Instant; hasPlace?: boolean };
  /** A volume whose cap becomes `gib`, and was `before` (0 for a new one or one without a cap). */
  cap?: { gib: number; before: number };
}

/** Rows that the counts of an organization may be made of before who reads them folds them. A job does it long before, if one runs. */
const MOST_PARTS = 2_000;

/**
 * What had much room when this process looked last, as an organization with the limits that were asked for: there the quotas are held
 * together at once, and what there is is read once. Where it is gone meanwhile, one begins anew.
 */
const roomy = new Set<string>();
const MOST_ROOMY = 10_000;

/** What one of the limits says of a reservation. */
interface Counted {
  quota: Limit;
  more: number;
  /** How much of it is in use. */
  used: (current: QuotaRow) => number | Promise<number>;
}

/**
 * Refuses what the quotas of the organization do not allow. What is allowed stays so until the transaction ends, as it holds
 * the quotas when one of them matters here. Without such a limit nobody waits.
 *
 * Close to a limit one holds them alone, so that of many requests at once each counts what those before it have taken. Where
 * there is room for one more of every transaction that the database can have at once, they are held together: what those under
 * way add and nobody sees yet fits in any case.
 *
 * To be called after the rows of sandboxes and volumes are locked and before any is written: all take the locks in this
 * order.
 */
export async function reserve(tx: Sql, caller: Caller, wanted: Reservation): Promise<Limits> {
  const { orgId } = caller;
  const concerned = countedBy(tx, orgId, wanted);
  const asked = [orgId, ...concerned.map(({ quota }) => quota)].join(' ');
  const isShared = wanted.cap === undefined;
  const isHeld = isShared && roomy.has(asked);
  if (isHeld) await lockQuotas(tx, orgId, 'together');
  const limits = await read();
  if (wanted.start) await refuseStart(tx, caller, limits, wanted.start.at);
  if (concerned.every(({ quota }) => limitOf(limits, quota) === null)) {
    roomy.delete(asked);
    return limits;
  }
  // A look without the lock, unless there was much room: who does not fit need not queue, and holds up nobody who does.
  const room = await check(limits).catch((error: unknown) => {
    roomy.delete(asked);
    throw error;
  });
  if (limits.parts > MOST_PARTS) await compactCounts(tx, orgId);
  if (isHeld) return heldTogether(limits, room);
  // Twice: it shrinks until the lock is had, and who begins anew for want of room is not to come here again.
  if (isShared && room > 2 * limits.most_at_once) {
    await lockQuotas(tx, orgId, 'together');
    const held = await read();
    return heldTogether(held, await check(held));
  }
  await lockQuotas(tx, orgId, 'alone');
  const held = await read();
  await check(held);
  return held;

  function heldTogether(held: QuotaRow, left: number): QuotaRow {
    if (left > held.most_at_once) {
      if (roomy.size >= MOST_ROOMY) roomy.clear();
      roomy.add(asked);
      return held;
    }
    roomy.delete(asked);
    // Whoever holds them together and asks for them alone waits for others that do the same.
    throw new Overtaken('the quotas cannot be held together any more');
  }

  async function read(): Promise<QuotaRow> {
    const row = await getQuotas(
      tx,
      orgId,
      concerned.map(({ quota }) => quota),
    );
    if (!row) throw new ApiError('org_not_found');
    return row;
  }

  /** Returns how much more there would be room for. */
  async function check(current: QuotaRow): Promise<number> {
    let least = Infinity;
    for (const { quota, more, used: usedIn } of concerned) {
      const limit = limitOf(current, quota);
      if (limit === null) continue;
      const used = await usedIn(current);
      if (used + more > limit) {
        refuseTotal(caller, quota, limit, used, `the organization uses ${used} of at most ${limit}`);
      }
      least = Math.min(least, limit - used - more);
    }
    return least;
  }
}

function countedBy(tx: Sql, orgId: string, { sandbox, start, cap }: Reservation): Counted[] {
  const list: Counted[] = [];
  if (sandbox) list.push({ quota: 'max_sandboxes', more: 1, used: ({ existing }) => existing });
  const isCounted = start !== undefined && start.hasPlace !== true;
  if (isCounted && start.ephemeral) {
    const used = ({ ephemeral_running }: QuotaRow) => ephemeral_running;
    list.push({ quota: 'max_concurrent_ephemeral_running', more: 1, used });
  }
  if (isCounted && !start.ephemeral) {
    const used = ({ persistent_running }: QuotaRow) => persistent_running;
    list.push({ quota: 'max_concurrent_persistent_running', more: 1, used });
  }
  // A cap that shrinks is always allowed, also where a limit was lowered below what there is.
  if (cap && cap.gib > cap.before) {
    const more = cap.gib - cap.before;
    list.push({ quota: 'max_total_storage_gib', more, used: () => sumOfCaps(tx, orgId) });
  }
  return list;
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
  if (!canExhaustPool(limits)) return;
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
