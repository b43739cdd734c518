import type { Sql } from '../../db/pool.js';

/** `worker_id`: the worker with the disks of the sandboxes; null: any worker. */
export interface WaitingTotals {
  runtime: string;
  worker_id: string | null;
  runs: number;
  vcpus: number;
  memory_mib: number;
}

const WAITING = `runs r join sandboxes s
  on s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id and s.status = 'starting' and s.removed_at is null
  where r.worker_id is null and r.started_at is null and r.end_reason is null`;

export async function countWaiting(sql: Sql, { noRoom = false } = {}): Promise<WaitingTotals[]> {
  const { rows } = await sql.query<WaitingTotals & Record<string, unknown>>(
    `select s.runtime, s.worker_id, count(*) as runs, sum(r.vcpus)::float8 as vcpus, sum(r.memory_mib)::float8 as memory_mib
     from ${WAITING} and (not $1 or s.status_reason = 'insufficient_capacity')
     group by s.runtime, s.worker_id`,
    [noRoom],
  );
  return rows;
}

export interface LongWait {
  org_id: string;
  sandbox_id: string;
  name: string;
  run_id: string;
  status_reason: string | null;
  vcpus: number;
  memory_mib: number;
  disk_mib: number;
}

/** Locks the sandboxes of unmarked runs that were admitted before this time. Skips locked sandboxes. */
export async function lockLongWaits(
  tx: Sql,
  runtime: string,
  beforeMillis: number,
  limit: number,
): Promise<LongWait[]> {
  const { rows } = await tx.query<LongWait & Record<string, unknown>>(
    `select r.org_id, r.sandbox_id, s.name, r.id as run_id, s.status_reason, r.vcpus, r.memory_mib, r.disk_mib
     from ${WAITING} and s.runtime = $1 and not r.wait_noted and r.id < $2
     order by r.id
     limit $3
     for update of s skip locked`,
    [runtime, firstIdOf(beforeMillis), limit],
  );
  return rows;
}

/** The lowest UUID of version 7 of this millisecond. The ids of runs are in order of admission. */
function firstIdOf(millis: number): string {
  const hex = millis.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}
