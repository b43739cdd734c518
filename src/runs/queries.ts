import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
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

/** When a run began and ended, and until when it is known to have run. */
export interface RunTimes {
  org_id: string;
  id: string;
  started_at: Instant | null;
  stopped_at: Instant | null;
  seen_at: Instant | null;
  end_reason: string | null;
}

/** For who holds the sandboxes of these runs: nobody else changes them meanwhile, but for when they were seen. */
export async function readRunTimes(
  tx: Sql,
  runs: readonly { orgId: string; runId: string }[],
): Promise<RunTimes[]> {
  const { rows } = await tx.query<RunTimes & Record<string, unknown>>(
    prepared(
      `select r.org_id, r.id, r.started_at, r.stopped_at, r.seen_at, r.end_reason
       from runs r
       join unnest($1::uuid[], $2::uuid[]) as t (org_id, id) on r.org_id = t.org_id and r.id = t.id`,
      [runs.map(({ orgId }) => orgId), runs.map(({ runId }) => runId)],
    ),
  );
  return rows;
}

export async function writeRunTimes(sql: Sql, runs: readonly RunTimes[]): Promise<void> {
  await sql.query(
    `update runs r
     set started_at = t.started_at, stopped_at = t.stopped_at, seen_at = t.seen_at, end_reason = t.end_reason
     from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::text[])
       as t (org_id, id, started_at, stopped_at, seen_at, end_reason)
     where r.org_id = t.org_id and r.id = t.id`,
    [
      runs.map(({ org_id }) => org_id),
      runs.map(({ id }) => id),
      runs.map(({ started_at }) => started_at),
      runs.map(({ stopped_at }) => stopped_at),
      runs.map(({ seen_at }) => seen_at),
      runs.map(({ end_reason }) => end_reason),
    ],
  );
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
