import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { Waiting } from './assign.js';

/**
 * Placement writes rows of `sandboxes` and `runs`, which their own slices write otherwise: where a sandbox is and why it
 * waits is the outcome of placement alone.
 */

/**
 * The runs `r` of sandboxes `s` that wait for a place on a worker of runtime $1, in order of arrival. Only those of `runs` and `own`, of
 * whom the conditions may be.
 *
 * The runs are walked as their index has them, and the sandbox of each is looked up by its key (`offset 0` leaves the planner no choice):
 * of thousands that come at once it knows nothing yet, and took 3 s to join 500 of them with a table from end to end. What a sandbox
 * has to be stands where it is looked up, too: who locks those that are found locks no others.
 */
const waiting = ({ runs = '', own = '' } = {}) => `from (
    select * from runs where worker_id is null and started_at is null and end_reason is null ${runs} order by id offset 0
  ) r
  cross join lateral (
    select * from sandboxes own
    where own.org_id = r.org_id and own.id = r.sandbox_id and own.run_id = r.id
      and own.status = 'starting' and own.removed_at is null and own.runtime = $1 ${own}
    offset 0
  ) s`;

/** Cheap: the index on runs that wait is empty nearly always. */
export async function isAnyWaiting(sql: Sql, runtime: string): Promise<boolean> {
  const { rows } = await sql.query(`select ${waiting()} limit 1`, [runtime]);
  return rows.length > 0;
}

/** One placement at a time for a runtime, until the transaction ends. */
export async function serializePlacement(tx: Sql, runtime: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`placement ${runtime}`]);
}

/** Those that wait, in order of arrival, after the run `behind`. */
export async function readQueue(
  sql: Sql,
  runtime: string,
  behind: string | null,
  limit: number,
): Promise<Waiting[]> {
  const { rows } = await sql.query<{
    run_id: string;
    worker_id: string | null;
    vcpus: number;
    memory_mib: number;
    disk_mib: number;
    demands: string[] | null;
  }>(
    `select r.id as run_id, s.worker_id, r.vcpus, r.memory_mib, r.disk_mib, s.run_spec -> 'demands' as demands
     ${waiting({ runs: 'and ($2::uuid is null or id > $2)' })}
     order by r.id
     limit $3`,
    [runtime, behind, limit],
  );
  return rows.map((row) => ({
    runId: row.run_id,
    needs: {
      vcpus: row.vcpus,
      memoryMib: row.memory_mib,
      // The disk of one that was placed before is counted already.
      diskMib: row.worker_id === null ? row.disk_mib : 0,
    },
    demands: row.demands ?? [],
    pinnedTo: row.worker_id,
  }));
}

/**
 * Locks the sandboxes of those of these runs that still wait, before anything of them is written: like every operation,
 * sandbox first and run after. Passes over what another transaction holds.
 */
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

/** Writes where these runs are, whose sandboxes the transaction holds. */
export async function markPlaced(
  tx: Sql,
  placed: readonly { runId: string; workerId: string }[],
  at: Instant,
): Promise<void> {
  if (placed.length === 0) return;
  await tx.query(
    `with placed as (
       select run_id, worker_id from unnest($1::uuid[], $2::uuid[]) as p (run_id, worker_id)
     ), placed_runs as (
       update runs r set worker_id = p.worker_id
       from placed p where r.id = p.run_id and r.worker_id is null and r.started_at is null and r.end_reason is null
       returning r.org_id, r.sandbox_id, r.worker_id, r.disk_mib
     )
     update sandboxes s set worker_id = r.worker_id, disk_mib = r.disk_mib, status_reason = null, changed_at = $3
     from placed_runs r where s.org_id = r.org_id and s.id = r.sandbox_id`,
    [placed.map(({ runId }) => runId), placed.map(({ workerId }) => workerId), at],
  );
}

/** Tells these runs why they wait, and all that came after `behind`. Who was told before is left alone. */
export async function markShort(
  tx: Sql,
  runtime: string,
  { runIds, behind }: { runIds: readonly string[]; behind: string | null },
  at: Instant,
): Promise<void> {
  if (runIds.length === 0 && behind === null) return;
  await tx.query(
    `update sandboxes set status_reason = 'insufficient_capacity', changed_at = $4
     where (org_id, id) in (
       select s.org_id, s.id
       ${waiting({
         runs: 'and (id = any ($2::uuid[]) or id > $3)',
         own: "and own.status_reason is distinct from 'insufficient_capacity'",
       })}
       for update of s skip locked)`,
    [runtime, runIds, behind, at],
  );
}
