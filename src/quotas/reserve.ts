import type { Caller } from '../access/caller.js';
import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { Overtaken } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { startOfMonth, type Instant } from '../lib/instant.js';
import { exhaustedHours, canExhaustHours, storageLimit, type Limit, type Limits } from './limits.js';
import { refuseOverBudget } from '../budgets/check.js';
import { refuseTotal } from './refuse.js';
import {
  compactCounts,
  countPublishedPorts,
  getQuotas,
  lockQuotas,
  usedHours,
  sumOfCaps,
  sumSnapshots,
  type QuotaRow,
} from './queries.js';

export interface Reservation {
  sandbox?: true;
  /** So many sandboxes, and starts of them, of one kind. Default: 1. */
  times?: number;
  /**
   * One sandbox with these labels is started. `isCounted`: it replaces a running one, which is counted already.
   */
  start?: {
    ephemeral: boolean;
    at: Instant;
    labels: Readonly<Record<string, string>>;
    isCounted?: boolean;
  };
  /** Ports that a new sandbox publishes on the host. Default: 0. */
  ports?: number;
  /** The cap of a volume changes. `before`: 0 for a new volume or one without a cap. */
  cap?: { gib: number; before: number };
  /** A snapshot whose size is not known yet. */
  snapshot?: true;
}

const GIB = 1024 ** 3;

/** A reader compacts the counts of an organization beyond this number of rows. Normally a job does so much earlier. */
const MAX_COUNT_ROWS = 2_000;

/** A quota that the reservation uses. */
interface Demand {
  quota: Limit;
  more: number;
  used: (current: QuotaRow) => number | Promise<number>;
}

/**
 * Refuses a reservation that exceeds a quota, and sandboxes and starts while a disk is short. An accepted one remains
 * valid until the transaction ends, because the transaction holds an advisory lock on the quotas if a limit applies.
 *
 * - The lock is exclusive close to a limit, so that concurrent requests see each other's counts.
 * - The lock is shared while there is room for one more reservation of every transaction that the database can run:
 *   their uncommitted counts fit in any case. A cap, ports and several sandboxes take more than one unit, and the bytes
 *   of a snapshot are not known, so they never share.
 * - If the quotas were roomy lately, the shared lock is taken before the first read, which saves a second one.
 *
 * Lock order: the rows of sandboxes and volumes, then the quotas. Nothing is written before.
 */
export async function reserve(
  ctx: Pick<Context, 'roomyQuotas' | 'disk' | 'settings'>,
  tx: Sql,
  caller: Caller,
  wanted: Reservation,
): Promise<Limits> {
  const { roomyQuotas, disk } = ctx;
  if (wanted.sandbox || wanted.start || wanted.snapshot) disk.checkAll();
  const { orgId } = caller;
  const demands = demandsOf(tx, orgId, wanted);
  const name = [orgId, ...demands.map(({ quota }) => quota)].join(' ');
  const mayShare = wanted.cap === undefined && !wanted.ports && !wanted.snapshot && (wanted.times ?? 1) === 1;
  const wereRoomy = mayShare && roomyQuotas.has(name);

  if (wereRoomy) await lockQuotas(tx, orgId, 'shared');
  const first = await read(tx, orgId, demands);
  if (wanted.start || wanted.snapshot) refuseSuspended(first);
  if (wanted.start) await refuseStart(tx, caller, first, wanted.start.at);
  if (wanted.start && first.has_budgets) await refuseOverBudget(ctx, tx, caller, wanted.start);
  if (demands.every(({ quota }) => limitOf(first, quota) === null)) {
    roomyQuotas.delete(name);
    return first;
  }
  // Usually without the lock: a request that does not fit must not queue for it.
  const room = await roomAfter(caller, demands, first).catch((error: unknown) => {
    roomyQuotas.delete(name);
    throw error;
  });
  if (first.count_rows > MAX_COUNT_ROWS) await compactCounts(tx, orgId);
  if (wereRoomy) return keepSharedLock(first, room);

  // Twice the room, because it may shrink until the lock is granted.
  const lock = mayShare && room > 2 * first.most_at_once ? 'shared' : 'exclusive';
  await lockQuotas(tx, orgId, lock);
  const locked = await read(tx, orgId, demands);
  const roomUnderLock = await roomAfter(caller, demands, locked);
  return lock === 'shared' ? keepSharedLock(locked, roomUnderLock) : locked;

  function keepSharedLock(current: QuotaRow, left: number): QuotaRow {
    if (left > current.most_at_once) {
      roomyQuotas.add(name);
      return current;
    }
    roomyQuotas.delete(name);
    // Two transactions that upgrade a shared lock would wait for each other, so this one starts again.
    throw new Overtaken('the quotas have too little room for a shared lock');
  }
}

async function read(tx: Sql, orgId: string, demands: readonly Demand[]): Promise<QuotaRow> {
  const concerned = demands.map(({ quota }) => quota);
  const row = await getQuotas(tx, orgId, concerned);
  if (!row) throw new ApiError('org_not_found');
  return row;
}

/** The room that the reservation leaves in the most restrictive quota. Refuses a reservation that exceeds one. */
async function roomAfter(caller: Caller, demands: readonly Demand[], current: QuotaRow): Promise<number> {
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

function demandsOf(
  tx: Sql,
  orgId: string,
  { sandbox, start, cap, snapshot, ports = 0, times = 1 }: Reservation,
): Demand[] {
  const list: Demand[] = [];
  if (sandbox) list.push({ quota: 'max_sandboxes', more: times, used: ({ existing }) => existing });
  const needsSlot = start !== undefined && start.isCounted !== true;
  if (needsSlot && start.ephemeral) {
    const used = ({ ephemeral_running }: QuotaRow) => ephemeral_running;
    list.push({ quota: 'max_concurrent_ephemeral_running', more: times, used });
  }
  if (needsSlot && !start.ephemeral) {
    const used = ({ persistent_running }: QuotaRow) => persistent_running;
    list.push({ quota: 'max_concurrent_persistent_running', more: times, used });
  }
  if (ports > 0)
    list.push({ quota: 'max_published_ports', more: ports, used: () => countPublishedPorts(tx, orgId) });
  if (snapshot) {
    const sums = async () => sumSnapshots(tx, orgId);
    list.push({ quota: 'max_snapshots', more: 1, used: async () => (await sums()).count });
    const gib = async () => Math.ceil((await sums()).bytes / GIB);
    list.push({ quota: 'max_snapshot_gib', more: 0, used: gib });
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

function refuseSuspended(limits: Limits): void {
  if (!limits.is_suspended) return;
  const details = { quota: 'is_suspended', limit: null, used: null };
  throw new ApiError(
    'quota_exceeded',
    'the organization is suspended: nothing of it can be started',
    details,
  );
}

async function refuseStart(tx: Sql, caller: Caller, limits: Limits, at: Instant): Promise<void> {
  if (!canExhaustHours(limits)) return;
  const exhausted = exhaustedHours(limits, await usedHours(tx, caller.orgId, startOfMonth(at), at));
  if (!exhausted) return;
  refuseTotal(
    caller,
    exhausted.quota,
    exhausted.limit,
    exhausted.used,
    `the ${exhausted.limit} hours of this month are used up, until the next UTC month nothing can be started`,
  );
}
