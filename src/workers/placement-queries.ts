import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Waiting } from './assign.js';

/**
 * Placement writes rows of `sandboxes` and `runs`, which their own slices write otherwise: where a sandbox is and why it
 * waits is the outcome of placement alone.
 */

const WAITING = `r.worker_id is null and r.started_at is null and r.end_reason is null
  and s.status = 'starting' and s.removed_at is null and s.runtime = $1`;

/** Cheap: the index on runs that wait is empty nearly always. */
export async function isAnyWaiting(sql: Sql, runtime: string): Promise<boolean> {
  const { rows } = await sql.query(
    `select from runs r join sandboxes s on s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id where ${WAITING} limit 1`,
    [runtime],
  );
  return rows.length > 0;
}

/** One placement at a time for a runtime, until the transaction ends. */
export async function serializePlacement(tx: Sql, runtime: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`placement ${runtime}`]);
}

/**
 * The runs that wait, in order of arrival, with their sandboxes locked. One that a caller is changing just now (stopping
 * it, say) is passed over and comes the next time.
 */
export async function lockQueue(
  tx: Sql,
  runtime: string,
  limit: number,
): Promise<(Waiting & { sandboxId: string })[]> {
  const { rows } = await tx.query<{
    run_id: string;
    sandbox_id: string;
    worker_id: string | null;
    vcpus: number;
    memory_mib: number;
    disk_mib: number;
    demands: string[] | null;
  }>(
    `select r.id as run_id, s.id as sandbox_id, s.worker_id, r.vcpus, r.memory_mib, r.disk_mib,
       s.run_spec -> 'demands' as demands
     from runs r
     join sandboxes s on s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id
     where ${WAITING}
     order by r.id
     limit $2
     for update of s skip locked`,
    [runtime, limit],
  );
  return rows.map((row) => ({
    runId: row.run_id,
    sandboxId: row.sandbox_id,
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

export async function markPlaced(tx: Sql, placed: ReadonlyMap<string, string>, at: Instant): Promise<void> {
  if (placed.size === 0) return;
  await tx.query(
    `with placed as (
       select run_id, worker_id from unnest($1::uuid[], $2::uuid[]) as p (run_id, worker_id)
     ), placed_runs as (
       update runs r set worker_id = p.worker_id
       from placed p where r.id = p.run_id and r.worker_id is null and r.started_at is null and r.end_reason is null
       returning r.org_id, r.id, r.sandbox_id, r.worker_id, r.disk_mib
     )
     update sandboxes s set worker_id = r.worker_id, disk_mib = r.disk_mib, status_reason = null, changed_at = $3
     from placed_runs r where s.org_id = r.org_id and s.id = r.sandbox_id`,
    [[...placed.keys()], [...placed.values()], at],
  );
}

/** Tells those who wait why. Who was told before is left alone. */
export async function markShort(tx: Sql, runIds: readonly string[], at: Instant): Promise<void> {
  if (runIds.length === 0) return;
  await tx.query(
    `update sandboxes s set status_reason = 'insufficient_capacity', changed_at = $2
     from runs r
     where r.id = any ($1::uuid[]) and r.worker_id is null and r.started_at is null and r.end_reason is null
       and s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id
       and s.status_reason is distinct from 'insufficient_capacity'`,
    [runIds, at],
  );
}
