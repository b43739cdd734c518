import type { Sql } from '../../db/pool.js';

/** Runs of a runtime that wait for a place. `worker_id`: the only worker they can go to; null for any. */
export interface WaitingRuns {
  runtime: string;
  worker_id: string | null;
  runs: number;
  vcpus: number;
  memory_mib: number;
}

/** Runs `r` without a place, of sandboxes `s` that are to start. */
const WAITING = `runs r join sandboxes s
  on s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id and s.status = 'starting' and s.removed_at is null
  where r.worker_id is null and r.started_at is null and r.end_reason is null`;

/** `short`: only those that were told that there is no room. */
export async function countWaiting(sql: Sql, { short = false } = {}): Promise<WaitingRuns[]> {
  const { rows } = await sql.query<WaitingRuns & Record<string, unknown>>(
    `select s.runtime, s.worker_id, count(*) as runs, sum(r.vcpus)::float8 as vcpus, sum(r.memory_mib)::float8 as memory_mib
     from ${WAITING} and (not $1 or s.status_reason = 'insufficient_capacity')
     group by s.runtime, s.worker_id`,
    [short],
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

/** Runs that were admitted before this time (milliseconds since 1970), still wait and are not noted. Locks their sandboxes; passes over locked ones. */
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

/**
 * Returns the runs that nobody has noted before. What `lockLongWaits` read of a run may be out of date, as only its sandbox
 * was locked; this tells for certain.
 */
export async function noteWaits(tx: Sql, waits: readonly LongWait[]): Promise<ReadonlySet<string>> {
  const { rows } = await tx.query<{ id: string }>(
    `update runs r set wait_noted = true
     from unnest($1::uuid[], $2::uuid[]) as w (org_id, id)
     where r.org_id = w.org_id and r.id = w.id and not r.wait_noted
     returning r.id`,
    [waits.map(({ org_id }) => org_id), waits.map(({ run_id }) => run_id)],
  );
  return new Set(rows.map(({ id }) => id));
}

/** Ids of runs are in the order of their admission (UUID version 7): the first one of this millisecond. */
function firstIdOf(millis: number): string {
  const hex = millis.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}
