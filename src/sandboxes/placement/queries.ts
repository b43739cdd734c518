import { ADVISORY_LOCKS, lockAdvisory } from '../../db/advisory-locks.js';
import { SEPARATE } from '../../db/planner-hints.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { PlacedRun } from '../../runs/queries.js';
import type { Amounts } from './amounts.js';
import type { WaitingRun } from './assign.js';

/** The waiting runs that a placement reads, in equal parts of the organizations. */
export const PASS_RUNS = 2_000;
/** The same for a placement within a second after one that read `PASS_RUNS`. */
export const HEAD_RUNS = 200;
/** A placement looks for them among so many of an organization, because the workers of some runs may be away. */
const SCANNED_RUNS = 10_000;
const FEWEST_OF_ORG = 10;

/**
 * An expression, so that each sandbox is found by its key. For `own.status` the planner chooses the partial index of
 * running sandboxes, which its statistics call empty: 500 of 2,000 new runs take 200 ms, and 3 ms with the expression.
 * `npm run bench -- hints` prints both.
 */
export const STARTING = "own.status || '' = 'starting'";

const WAITS = 'worker_id is null and started_at is null and end_reason is null';

/** The disk of a fork is captured after its admission. */
const HAS_DISK = `(own.disk_snapshot_id is null or not exists (
      select from snapshots p where p.id = own.disk_snapshot_id and p.status in ('queued', 'in_progress')))`;

/**
 * The sandbox `s` of runtime $1 that the run `r` is to start. The conditions are in the subquery, so that `for update
 * of s` locks no other sandbox.
 */
const startingSandbox = (own: string) => `cross join lateral (
    select * from sandboxes own
    where own.org_id = r.org_id and own.id = r.sandbox_id and own.run_id = r.id
      and ${STARTING} and own.removed_at is null and own.runtime = $1 and ${HAS_DISK} ${own}
    ${SEPARATE}
  ) s`;

/** The waiting runs `r` and their sandboxes `s`, in order of arrival, under further conditions on `runs`. */
const waiting = (runs = '', own = '', limit = '') => `(
    select * from runs where ${WAITS} ${runs} order by org_id, id ${limit} ${SEPARATE}
  ) r
  ${startingSandbox(own)}`;

/** The runs of $3 in organizations of $2: one probe of the index for each. */
const waitingAmong = (
  more: { columns: string; names: string; own: string } = { columns: '', names: '', own: '' },
) => `unnest($2::uuid[], $3::uuid[]${more.columns}) as w (org_id, run_id${more.names})
  cross join lateral (
    select * from runs where org_id = w.org_id and id = w.run_id and ${WAITS} ${SEPARATE}
  ) r
  ${startingSandbox(more.own)}`;

/** These runs with words of $5, without those that say so already: a row that is read here is locked. */
const UNTOLD = waitingAmong({
  columns: ', $5::text[]',
  names: ', words',
  own: `and (own.status_reason is distinct from 'insufficient_capacity'
      or own.last_failure_message is distinct from w.words)`,
});

/** The organizations with waiting runs, with one probe of the index for each, however many runs wait. */
const WAITING_ORGS = `recursive waiting_orgs as (
    (select org_id from runs where ${WAITS} order by org_id limit 1)
    union all
    select (select org_id from runs where ${WAITS} and org_id > w.org_id order by org_id limit 1)
    from waiting_orgs w where w.org_id is not null
  )`;

/** Cheap: the partial index on waiting runs is nearly always empty. */
export async function isAnyWaiting(sql: Sql, runtime: string): Promise<boolean> {
  const { rows } = await sql.query(`select from ${waiting()} limit 1`, [runtime]);
  return rows.length > 0;
}

/** Allows one placement of a runtime at a time, until the transaction ends. */
export async function serializePlacement(tx: Sql, runtime: string): Promise<void> {
  await lockAdvisory(tx, ADVISORY_LOCKS.placement(runtime));
}

export interface QueuedRun extends Omit<WaitingRun, 'waitedMs'> {
  orgId: string;
  /** Its sandbox says `insufficient_capacity`. */
  isMarked: boolean;
  /** The words that it shows about its wait. */
  words: string | null;
}

/**
 * The first waiting runs of each organization, in order of arrival: together about `count`. Leaves out sandboxes with
 * their disk on a worker that is not in `workerIds`. A run needs no disk that the worker of an earlier run counts.
 */
export async function readQueues(
  sql: Sql,
  runtime: string,
  workerIds: readonly string[],
  count = PASS_RUNS,
): Promise<QueuedRun[]> {
  const { rows } = await sql.query<{
    org_id: string;
    run_id: string;
    worker_id: string | null;
    vcpus: number;
    memory_mib: number;
    disk_mib: number;
    capabilities: string[] | null;
    is_marked: boolean;
    words: string | null;
  }>(
    `with ${WAITING_ORGS}
     select q.* from waiting_orgs w
     cross join lateral (
       select r.org_id, r.id as run_id, s.worker_id, r.vcpus, r.memory_mib,
         case when s.disk_mib = 0 then r.disk_mib else 0 end as disk_mib, s.run_spec -> 'demands' as capabilities,
         s.status_reason is not distinct from 'insufficient_capacity' as is_marked, s.last_failure_message as words
       from ${waiting('and org_id = w.org_id', 'and (own.worker_id is null or own.worker_id = any ($2::uuid[]))', 'limit $5')}
       limit greatest($4, $3 / (select count(org_id) from waiting_orgs))
     ) q
     where w.org_id is not null`,
    [runtime, workerIds, count, FEWEST_OF_ORG, SCANNED_RUNS],
  );
  return rows.map((row) => ({
    orgId: row.org_id,
    runId: row.run_id,
    needs: {
      vcpus: row.vcpus,
      memoryMib: row.memory_mib,
      diskMib: row.disk_mib,
    },
    capabilities: row.capabilities ?? [],
    pinnedTo: row.worker_id,
    isMarked: row.is_marked,
    words: row.words,
  }));
}

/** The use of these workers by organizations, and the time of their latest start in milliseconds. */
export async function readUse(
  sql: Sql,
  orgIds: readonly string[],
  workerIds: readonly string[],
): Promise<Map<string, { used: Amounts; lastStart: number }>> {
  const { rows } = await sql.query<{
    org_id: string;
    vcpus: number;
    memory_mib: number;
    disk_mib: number;
    last_start: number;
  }>(
    `with u as (
       select org_id, sum(vcpus)::float8 as vcpus, sum(memory_mib)::float8 as memory_mib, sum(disk_mib)::float8 as disk_mib
       from (
         select org_id, vcpus, memory_mib, 0 as disk_mib from runs
         where worker_id = any ($2::uuid[]) and end_reason is null
         union all
         select org_id, 0, 0, disk_mib from sandboxes
         where worker_id = any ($2::uuid[]) and destroyed_at is null and disk_mib > 0
       ) each
       group by org_id
     )
     select o.org_id, coalesce(vcpus, 0) as vcpus, coalesce(memory_mib, 0) as memory_mib, coalesce(disk_mib, 0) as disk_mib,
       coalesce(extract(epoch from (
         select started_at from runs where org_id = o.org_id and started_at is not null
         order by org_id desc, started_at desc limit 1)) * 1000, 0)::float8 as last_start
     from unnest($1::uuid[]) as o (org_id)
     left join u on u.org_id = o.org_id`,
    [orgIds, workerIds],
  );
  return new Map(
    rows.map((row) => [
      row.org_id,
      {
        used: { vcpus: row.vcpus, memoryMib: row.memory_mib, diskMib: row.disk_mib },
        lastStart: row.last_start,
      },
    ]),
  );
}

type RunKey = Pick<QueuedRun, 'orgId' | 'runId'>;

const keysOf = (runs: readonly RunKey[]) => [runs.map(({ orgId }) => orgId), runs.map(({ runId }) => runId)];

/** Locks the sandboxes of the runs that still wait. Skips locked sandboxes: the next placement takes them. */
export async function lockWaiting(
  tx: Sql,
  runtime: string,
  runs: readonly RunKey[],
): Promise<{ orgId: string; runId: string; sandboxId: string }[]> {
  if (runs.length === 0) return [];
  const { rows } = await tx.query<{ org_id: string; run_id: string; sandbox_id: string }>(
    `select r.org_id, r.id as run_id, s.id as sandbox_id from ${waitingAmong()}
     order by r.org_id, r.id
     for update of s skip locked`,
    [runtime, ...keysOf(runs)],
  );
  return rows.map((row) => ({ orgId: row.org_id, runId: row.run_id, sandboxId: row.sandbox_id }));
}

/**
 * Writes the worker and the disk of these runs into their sandboxes, which the transaction has locked. The disk of a
 * paused one has its memory until it runs.
 */
export async function placeSandboxes(tx: Sql, placed: readonly PlacedRun[], at: Instant): Promise<void> {
  if (placed.length === 0) return;
  await tx.query(
    `update sandboxes s set worker_id = p.worker_id, status_reason = null,
       disk_mib = case when s.paused_at is null then p.disk_mib else s.disk_mib end,
       last_failure_message = null, changed_at = $5
     from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[]) as p (org_id, id, worker_id, disk_mib)
     where s.org_id = p.org_id and s.id = p.id`,
    [
      placed.map(({ org_id }) => org_id),
      placed.map(({ sandbox_id }) => sandbox_id),
      placed.map(({ worker_id }) => worker_id),
      placed.map(({ disk_mib }) => disk_mib),
      at,
    ],
  );
}

/** Writes `insufficient_capacity` and its words for these runs, where they are not written yet. */
export async function markInsufficientCapacity(
  tx: Sql,
  runtime: string,
  runs: readonly (RunKey & { words: string })[],
  at: Instant,
): Promise<void> {
  if (runs.length === 0) return;
  await tx.query(
    `update sandboxes u set status_reason = 'insufficient_capacity', last_failure_message = m.words, changed_at = $4
     from (
       select s.org_id, s.id, w.words from ${UNTOLD} for update of s skip locked) m
     where u.org_id = m.org_id and u.id = m.id`,
    [runtime, ...keysOf(runs), at, runs.map(({ words }) => words)],
  );
}
