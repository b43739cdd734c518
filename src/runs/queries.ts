import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface NewRun {
  org_id: string;
  id: string;
  sandbox_id: string;
  vcpus: number;
  memory_mib: number;
  disk_mib: number;
  /** The longest it may take. Null is for ever. */
  max_duration_secs: number | null;
  idle_timeout_secs: number | null;
}

/** Writes the run before the runtime is asked to start it. It has no times yet. */
export async function insertRun(sql: Sql, run: NewRun): Promise<void> {
  await sql.query(
    `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, max_duration_secs,
       idle_timeout_secs)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      ...[run.org_id, run.id, run.sandbox_id, run.vcpus, run.memory_mib, run.disk_mib],
      ...[run.max_duration_secs, run.idle_timeout_secs],
    ],
  );
}

/** Writes why the run under way is to end. The first reason stays. */
export async function setStopReason(sql: Sql, orgId: string, id: string, reason: string): Promise<void> {
  await sql.query(
    `update runs set stop_reason = $3
     where org_id = $1 and id = $2 and end_reason is null and stop_reason is null`,
    [orgId, id, reason],
  );
}

/** Writes when the runtime recorded its start. False for a run that is open or closed already: it stays as it is. */
export async function openRun(sql: Sql, orgId: string, id: string, startedAt: Instant): Promise<boolean> {
  const { rowCount } = await sql.query(
    `update runs set started_at = $3, seen_at = $3
     where org_id = $1 and id = $2 and started_at is null and end_reason is null`,
    [orgId, id, startedAt],
  );
  return rowCount === 1;
}

/** Closes a run. `stoppedAt` is null when it never started. Returns its times, or undefined when it was closed before. */
export async function closeRun(
  sql: Sql,
  orgId: string,
  id: string,
  { stoppedAt, reason }: { stoppedAt: Instant | null; reason: string },
): Promise<{ started_at: Instant | null; stopped_at: Instant | null } | undefined> {
  const { rows } = await sql.query<{ started_at: Instant | null; stopped_at: Instant | null }>(
    // A clock that was set back must not make a run of negative length.
    `update runs
     set stopped_at = case when started_at is not null then greatest($3::timestamptz, started_at) end, end_reason = $4
     where org_id = $1 and id = $2 and end_reason is null
     returning started_at, stopped_at`,
    [orgId, id, stoppedAt, reason],
  );
  return rows[0];
}

/** Notes that these runs are still held running. */
export async function touchRuns(
  sql: Sql,
  runs: readonly { orgId: string; runId: string }[],
  at: Instant,
): Promise<void> {
  await sql.query(
    `update runs r set seen_at = $3
     from unnest($1::uuid[], $2::uuid[]) as t (org_id, id)
     where r.org_id = t.org_id and r.id = t.id and r.end_reason is null and r.started_at <= $3`,
    [runs.map(({ orgId }) => orgId), runs.map(({ runId }) => runId), at],
  );
}

/** Until when a run is known to have run, for one whose record is lost. */
export async function lastSeen(sql: Sql, orgId: string, id: string): Promise<Instant | null> {
  const { rows } = await sql.query<{ seen_at: Instant | null }>(
    'select seen_at from runs where org_id = $1 and id = $2',
    [orgId, id],
  );
  return rows[0]?.seen_at ?? null;
}

/** Closes whatever run of the sandbox is open, now. For imported history, which no runtime here keeps a record of. */
export async function closeRunsOf(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  at: Instant,
  reason: string,
): Promise<void> {
  await sql.query(
    `update runs set stopped_at = greatest($3::timestamptz, started_at), end_reason = $4
     where org_id = $1 and sandbox_id = $2 and end_reason is null`,
    [orgId, sandboxId, at, reason],
  );
}
