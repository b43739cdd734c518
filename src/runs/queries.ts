import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import { write, type WriteTarget } from '../db/write-batch.js';
import type { Instant } from '../lib/instant.js';

export interface NewRun {
  org_id: string;
  id: string;
  sandbox_id: string;
  vcpus: number;
  memory_mib: number;
  disk_mib: number;
  max_duration_secs: number | null;
  idle_timeout_secs: number | null;
  /** Null: it has no command. Missing in an admitted run that an earlier release stored. */
  command?: RunCommand | null;
  /** It continues the memory of a pause. Default: false. */
  resumes?: boolean;
  /** Without a place it ends then, unless its caller still waits. Null, default: it waits until it is stopped. */
  wanted_until?: Instant | null;
  /** The API key whose request starts it. Null, default: the system starts it. */
  started_by_key?: string | null;
}

/** `ends_run`: the run ends with the command. */
export type RunCommand = 'stays' | 'ends_run';

export async function insertRun(target: WriteTarget, run: NewRun): Promise<void> {
  await write(
    target,
    (
      p,
    ) => `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, max_duration_secs, idle_timeout_secs, command,
       wanted_until, resumes, handed_over, started_by_key)
     values (${p(run.org_id)}, ${p(run.id)}, ${p(run.sandbox_id)}, ${p(run.vcpus)}, ${p(run.memory_mib)}, ${p(run.disk_mib)},
       ${p(run.max_duration_secs)}, ${p(run.idle_timeout_secs)}, ${p(run.command ?? null)},
       ${p(run.wanted_until ?? null)}, ${p(run.resumes ?? false)}, ${p(run.resumes ?? false)},
       ${p(run.started_by_key ?? null)})`,
  );
}

/** Another caller wants the run: until a later time, or (null) for good. A run that is wanted for good stays so. */
export async function extendWanted(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  until: Instant | null,
): Promise<void> {
  await write(
    target,
    (p) => `update runs set wanted_until = case when ${p(until)}::timestamptz is not null
       then greatest(wanted_until, ${p(until)}::timestamptz) end
     where org_id = ${p(orgId)} and sandbox_id = ${p(sandboxId)} and end_reason is null and wanted_until is not null`,
  );
}

/**
 * A create takes over a run of a pool. The transaction has locked its sandbox. From `at` on, the usage belongs to the
 * key of the create.
 */
export async function takeOverRun(
  target: WriteTarget,
  orgId: string,
  id: string,
  {
    max_duration_secs,
    idle_timeout_secs,
    command,
    started_by_key,
  }: Pick<NewRun, 'max_duration_secs' | 'idle_timeout_secs' | 'command' | 'started_by_key'>,
  at: Instant,
): Promise<void> {
  await write(
    target,
    (
      p,
    ) => `update runs set max_duration_secs = ${p(max_duration_secs)}, idle_timeout_secs = ${p(idle_timeout_secs)},
       command = ${p(command ?? null)}, wanted_until = null, started_by_key = ${p(started_by_key ?? null)},
       key_since = ${p(at)}
     where org_id = ${p(orgId)} and id = ${p(id)}`,
  );
}

/** Process 1 of the run has the late parts of its specification. */
export async function noteHandedOver(tx: Sql, orgId: string, id: string): Promise<void> {
  await tx.query('update runs set handed_over = true where org_id = $1 and id = $2', [orgId, id]);
}

export async function everRan(sql: Sql, orgId: string, sandboxId: string): Promise<boolean> {
  const { rows } = await sql.query<{ ran: boolean }>(
    `select exists (
       select from runs where org_id = $1 and sandbox_id = $2 and started_at is not null
     ) as ran`,
    [orgId, sandboxId],
  );
  return rows[0]!.ran;
}

/** The first reason stays. */
export async function setStopReason(
  target: WriteTarget,
  orgId: string,
  id: string,
  reason: string,
): Promise<void> {
  await write(
    target,
    (p) => `update runs set stop_reason = ${p(reason)}
     where org_id = ${p(orgId)} and id = ${p(id)} and end_reason is null and stop_reason is null`,
  );
}

/** Null: the run is to continue. */
export async function replaceStopReason(
  sql: Sql,
  orgId: string,
  id: string,
  reason: string | null,
): Promise<void> {
  await sql.query('update runs set stop_reason = $3 where org_id = $1 and id = $2 and end_reason is null', [
    orgId,
    id,
    reason,
  ]);
}

export interface RunTimes {
  org_id: string;
  id: string;
  started_at: Instant | null;
  stopped_at: Instant | null;
  seen_at: Instant | null;
  end_reason: string | null;
  stop_reason: string | null;
  resumes: boolean;
  command: RunCommand | null;
  max_duration_secs: number | null;
  idle_timeout_secs: number | null;
  /** The API key that started the run, or took it over. Null: the system started it. */
  started_by_key: string | null;
}

/** The transaction has locked the sandboxes, so only `seen_at` may change. */
export async function readRunTimes(
  tx: Sql,
  runs: readonly { orgId: string; runId: string }[],
): Promise<RunTimes[]> {
  const { rows } = await tx.query<RunTimes & Record<string, unknown>>(
    prepared(
      `select r.org_id, r.id, r.started_at, r.stopped_at, r.seen_at, r.end_reason, r.stop_reason, r.resumes, r.command,
         r.max_duration_secs::float8, r.idle_timeout_secs::float8, r.started_by_key
       from runs r
       join unnest($1::uuid[], $2::uuid[]) as t (org_id, id) on r.org_id = t.org_id and r.id = t.id`,
      [runs.map(({ orgId }) => orgId), runs.map(({ runId }) => runId)],
    ),
  );
  return rows;
}

/** From the latest. */
export async function recentRuns(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  most: number,
): Promise<RunTimes[]> {
  const { rows } = await sql.query<RunTimes & Record<string, unknown>>(
    `select org_id, id, started_at, stopped_at, seen_at, end_reason, stop_reason, resumes, command,
       max_duration_secs::float8, idle_timeout_secs::float8, started_by_key
     from runs where org_id = $1 and sandbox_id = $2 order by id desc limit $3`,
    [orgId, sandboxId, most],
  );
  return rows;
}

export async function writeRunTimes(target: WriteTarget, runs: readonly RunTimes[]): Promise<void> {
  await write(
    target,
    (p) => `update runs r
     set started_at = t.started_at, stopped_at = t.stopped_at, seen_at = t.seen_at, end_reason = t.end_reason
     from unnest(
       ${p(runs.map(({ org_id }) => org_id))}::uuid[],
       ${p(runs.map(({ id }) => id))}::uuid[],
       ${p(runs.map(({ started_at }) => started_at))}::timestamptz[],
       ${p(runs.map(({ stopped_at }) => stopped_at))}::timestamptz[],
       ${p(runs.map(({ seen_at }) => seen_at))}::timestamptz[],
       ${p(runs.map(({ end_reason }) => end_reason))}::text[]
     ) as t (org_id, id, started_at, stopped_at, seen_at, end_reason)
     where r.org_id = t.org_id and r.id = t.id`,
  );
}

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

/** For imported sandboxes, whose runs no reconciler closes. */
export async function closeRunsOf(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  at: Instant,
  reason: string,
): Promise<void> {
  await write(
    target,
    (
      p,
    ) => `update runs set stopped_at = greatest(${p(at)}::timestamptz, started_at), end_reason = ${p(reason)}
     where org_id = ${p(orgId)} and sandbox_id = ${p(sandboxId)} and end_reason is null`,
  );
}

export interface PlacedRun {
  org_id: string;
  sandbox_id: string;
  worker_id: string;
  disk_mib: number;
}

/** Assigns workers to runs. Returns the runs that were still waiting. */
export async function placeRuns(
  tx: Sql,
  placed: readonly { orgId: string; runId: string; workerId: string }[],
): Promise<PlacedRun[]> {
  if (placed.length === 0) return [];
  const { rows } = await tx.query<PlacedRun & Record<string, unknown>>(
    `update runs r set worker_id = p.worker_id
     from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as p (org_id, run_id, worker_id)
     where r.org_id = p.org_id and r.id = p.run_id and r.worker_id is null and r.started_at is null and r.end_reason is null
     returning r.org_id, r.sandbox_id, r.worker_id, r.disk_mib`,
    [
      placed.map(({ orgId }) => orgId),
      placed.map(({ runId }) => runId),
      placed.map(({ workerId }) => workerId),
    ],
  );
  return rows;
}

/** Marks runs whose long wait becomes an audit event. Returns the runs without an earlier mark. */
export async function markWaitNoted(
  tx: Sql,
  runs: readonly { org_id: string; run_id: string }[],
): Promise<ReadonlySet<string>> {
  const { rows } = await tx.query<{ id: string }>(
    `update runs r set wait_noted = true
     from unnest($1::uuid[], $2::uuid[]) as w (org_id, id)
     where r.org_id = w.org_id and r.id = w.id and not r.wait_noted
     returning r.id`,
    [runs.map(({ org_id }) => org_id), runs.map(({ run_id }) => run_id)],
  );
  return new Set(rows.map(({ id }) => id));
}
