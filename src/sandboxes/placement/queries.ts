import { SEPARATE } from '../../db/planner-hints.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { PlacedRun } from '../../runs/queries.js';
import type { WaitingRun } from './assign.js';

/**
 * An expression, so that each sandbox is found by its key. For `own.status` the planner chooses the partial index of running
 * sandboxes, which its statistics call empty: 500 of 2,000 new runs take 200 ms, and 3 ms with the expression.
 * `npm run bench -- hints` prints both.
 */
export const STARTING = "own.status || '' = 'starting'";

/**
 * The waiting runs `r` of sandboxes `s` of runtime $1, in order of arrival, under further conditions on `runs` and `own`.
 * The conditions on a sandbox are in its subquery, so that `for update of s` locks no other sandbox.
 */
const waiting = ({ runs = '', own = '' } = {}) => `from (
    select * from runs where worker_id is null and started_at is null and end_reason is null ${runs} order by id ${SEPARATE}
  ) r
  cross join lateral (
    select * from sandboxes own
    where own.org_id = r.org_id and own.id = r.sandbox_id and own.run_id = r.id
      and ${STARTING} and own.removed_at is null and own.runtime = $1 ${own}
    ${SEPARATE}
  ) s`;

/** Cheap: the partial index on waiting runs is nearly always empty. */
export async function isAnyWaiting(sql: Sql, runtime: string): Promise<boolean> {
  const { rows } = await sql.query(`select ${waiting()} limit 1`, [runtime]);
  return rows.length > 0;
}

/** Allows one placement of a runtime at a time, until the transaction ends. */
export async function serializePlacement(tx: Sql, runtime: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`placement ${runtime}`]);
}

/** The waiting runs after the run `after`, in order of arrival. */
export async function readQueue(
  sql: Sql,
  runtime: string,
  after: string | null,
  limit: number,
): Promise<WaitingRun[]> {
  const { rows } = await sql.query<{
    run_id: string;
    worker_id: string | null;
    vcpus: number;
    memory_mib: number;
    disk_mib: number;
    capabilities: string[] | null;
  }>(
    `select r.id as run_id, s.worker_id, r.vcpus, r.memory_mib, r.disk_mib, s.run_spec -> 'demands' as capabilities
     ${waiting({ runs: 'and ($2::uuid is null or id > $2)' })}
     order by r.id
     limit $3`,
    [runtime, after, limit],
  );
  return rows.map((row) => ({
    runId: row.run_id,
    needs: {
      vcpus: row.vcpus,
      memoryMib: row.memory_mib,
      // The worker of an earlier run counts the disk already.
      diskMib: row.worker_id === null ? row.disk_mib : 0,
    },
    capabilities: row.capabilities ?? [],
    pinnedTo: row.worker_id,
  }));
}

/** Locks the sandboxes of the runs that still wait. Skips locked sandboxes: the next placement takes them. */
export async function lockWaiting(
  tx: Sql,
  runtime: string,
  runIds: readonly string[],
): Promise<{ runId: string; sandboxId: string }[]> {
  if (runIds.length === 0) return [];
  const { rows } = await tx.query<{ run_id: string; sandbox_id: string }>(
    `select r.id as run_id, s.id as sandbox_id ${waiting({ runs: 'and id = any ($2::uuid[])' })}
     order by r.id
     for update of s skip locked`,
    [runtime, runIds],
  );
  return rows.map(({ run_id: runId, sandbox_id: sandboxId }) => ({ runId, sandboxId }));
}

/** Writes the worker and the disk of these runs into their sandboxes, which the transaction has locked. */
export async function placeSandboxes(tx: Sql, placed: readonly PlacedRun[], at: Instant): Promise<void> {
  if (placed.length === 0) return;
  await tx.query(
    `update sandboxes s set worker_id = p.worker_id, disk_mib = p.disk_mib, status_reason = null, changed_at = $5
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

/** Writes `insufficient_capacity` for these runs and every run after `after`, where it is not written yet. */
export async function markInsufficientCapacity(
  tx: Sql,
  runtime: string,
  { runIds, after }: { runIds: readonly string[]; after: string | null },
  at: Instant,
): Promise<void> {
  if (runIds.length === 0 && after === null) return;
  await tx.query(
    `update sandboxes set status_reason = 'insufficient_capacity', changed_at = $4
     where (org_id, id) in (
       select s.org_id, s.id
       ${waiting({
         runs: 'and (id = any ($2::uuid[]) or id > $3)',
         own: "and own.status_reason is distinct from 'insufficient_capacity'",
       })}
       for update of s skip locked)`,
    [runtime, runIds, after, at],
  );
}
