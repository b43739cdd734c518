import { isNarrowed } from '../access/access.js';
import type { Caller } from '../access/caller.js';
import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { Overtaken } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import type { RunSpec } from '../spec/run-spec.js';
import { exhaustedPool, canExhaustPool, storageLimit, type Limit, type Limits } from './limits.js';
import { compactCounts, getQuotas, lockQuotas, poolUsage, sumOfCaps, type QuotaRow } from './queries.js';

export interface Reservation {
  sandbox?: true;
  /** One sandbox is started. `isCounted`: it replaces a running one, which is counted already. */
  start?: { ephemeral: boolean; at: Instant; isCounted?: boolean };
  /** The cap of a volume changes. `before`: 0 for a new volume or one without a cap. */
  cap?: { gib: number; before: number };
}

/** A reader compacts the counts of an organization beyond this number of rows. Normally a job does so much earlier. */
const MAX_COUNT_ROWS = 2_000;

interface Demand {
  quota: Limit;
  more: number;
  used: (current: QuotaRow) => number | Promise<number>;
}

/**
 * Refuses a reservation that exceeds a quota, and sandboxes and starts while a disk is short. An accepted one remains valid until the transaction ends, because the
 * transaction holds an advisory lock on the quotas if a limit applies.
 * Close to a limit the lock is exclusive, so that concurrent requests see each other's counts. It is shared while there
 * is room for one more reservation of every transaction that the database can run: their uncommitted counts fit in any
 * case. If the quotas were roomy lately, the shared lock is taken first, which saves one read.
 * Lock order: the rows of sandboxes and volumes, then the quotas. Nothing is written before.
 */
export async function reserve(
  { roomyQuotas, disk }: Pick<Context, 'roomyQuotas' | 'disk'>,
  tx: Sql,
  caller: Caller,
  wanted: Reservation,
): Promise<Limits> {
  if (wanted.sandbox || wanted.start) disk.checkAll();
  const { orgId } = caller;
  const demands = demandsOf(tx, orgId, wanted);
  const name = [orgId, ...demands.map(({ quota }) => quota)].join(' ');
  const mayShare = wanted.cap === undefined;
  const isHeld = mayShare && roomyQuotas.has(name);
  if (isHeld) await lockQuotas(tx, orgId, 'shared');
  const limits = await read();
  if (wanted.start) await refuseStart(tx, caller, limits, wanted.start.at);
  if (demands.every(({ quota }) => limitOf(limits, quota) === null)) {
    roomyQuotas.delete(name);
    return limits;
  }
  // Usually without the lock: a request that does not fit must not queue for it.
  const room = await check(limits).catch((error: unknown) => {
    roomyQuotas.delete(name);
    throw error;
  });
  if (limits.count_rows > MAX_COUNT_ROWS) await compactCounts(tx, orgId);
  if (isHeld) return keepShared(limits, room);
  // Twice the room, because it may shrink until the lock is granted.
  if (mayShare && room > 2 * limits.most_at_once) {
    await lockQuotas(tx, orgId, 'shared');
    const held = await read();
    return keepShared(held, await check(held));
  }
  await lockQuotas(tx, orgId, 'exclusive');
  const held = await read();
  await check(held);
  return held;

  function keepShared(held: QuotaRow, left: number): QuotaRow {
    if (left > held.most_at_once) {
      roomyQuotas.add(name);
      return held;
    }
    roomyQuotas.delete(name);
    // Two transactions that upgrade a shared lock would wait for each other, so this one starts again.
    throw new Overtaken('the quotas have too little room for a shared lock');
  }

  async function read(): Promise<QuotaRow> {
    const row = await getQuotas(
      tx,
      orgId,
      demands.map(({ quota }) => quota),
    );
    if (!row) throw new ApiError('org_not_found');
    return row;
  }

  /** Returns the room that is left after the reservation. */
  async function check(current: QuotaRow): Promise<number> {
    let least = Infinity;
    for (const { quota, more, used: usedIn } of demands) {
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

function demandsOf(tx: Sql, orgId: string, { sandbox, start, cap }: Reservation): Demand[] {
  const list: Demand[] = [];
  if (sandbox) list.push({ quota: 'max_sandboxes', more: 1, used: ({ existing }) => existing });
  const needsSlot = start !== undefined && start.isCounted !== true;
  if (needsSlot && start.ephemeral) {
    const used = ({ ephemeral_running }: QuotaRow) => ephemeral_running;
    list.push({ quota: 'max_concurrent_ephemeral_running', more: 1, used });
  }
  if (needsSlot && !start.ephemeral) {
    const used = ({ persistent_running }: QuotaRow) => persistent_running;
    list.push({ quota: 'max_concurrent_persistent_running', more: 1, used });
  }
  // A cap may always shrink, even if it stays above a lowered limit.
  if (cap && cap.gib > cap.before) {
    const more = cap.gib - cap.before;
    list.push({ quota: 'max_total_storage_gib', more, used: () => sumOfCaps(tx, orgId) });
  }
  return list;
}

function limitOf(limits: Limits, quota: Limit): number | null {
  return quota === 'max_total_storage_gib' ? storageLimit(limits) : limits[quota];
}

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

/** Refuses an unlimited disk if there is a limit that the runtime cannot enforce. */
export function refuseUnlimitedDisk(limit: number, runtime: string): never {
  const why = `the ${runtime} runtime cannot limit the size of a disk`;
  refuse('max_disk_size_mib_per_sandbox', limit, null, limit === 0 ? 'no disk is allowed' : why);
}

/** The maximum duration of a run in seconds. Null: unlimited. */
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

/** A key that is narrowed to labels must not learn the totals of the organization. */
function refuseTotal({ access }: Caller, quota: Limit, limit: number, used: number, reason: string): never {
  if (isNarrowed(access)) refuse(quota, null, null, 'the organization has used it up');
  refuse(quota, limit, used, reason);
}

function refuse(quota: Limit, limit: number | null, used: number | null, reason: string): never {
  throw new ApiError('quota_exceeded', `${quota}: ${reason}`, { quota, limit, used });
}
