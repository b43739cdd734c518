import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { RunSpec } from '../runtimes/runtime.js';
import type { Wanted } from './decide.js';
import { SANDBOX_COLUMNS, type LockedSandbox } from './queries.js';

/** What the reconciler needs to know of a sandbox. */
export interface ReconcileRow {
  orgId: string;
  sandboxId: string;
  maxDurationSecs: number | null;
  idleTimeoutSecs: number | null;
  startedAt: Instant | null;
  /** Why the run was asked to end; null when nobody asked. */
  stopReason: string | null;
  wanted: Omit<Wanted, 'quiet'>;
}

/**
 * The sandboxes of a worker that are not at rest, oldest change first, and those of `held`, which its engine holds. Those
 * that were never placed come too when they are to end, as any worker of the runtime can see to that. Sandboxes at rest
 * that nothing is held of do not come.
 */
export async function sandboxesToReconcile(
  sql: Sql,
  worker: { id: string; runtime: string },
  held: readonly { orgId: string; sandboxId: string }[],
): Promise<ReconcileRow[]> {
  const { rows } = await sql.query<{
    org_id: string;
    id: string;
    max_duration_secs: number | null;
    idle_timeout_secs: number | null;
    stop_reason: string | null;
    placed: boolean;
    started_at: Instant | null;
    status: Wanted['status'];
    removed: boolean;
    run_id: string | null;
    run_started: boolean;
    run_open: boolean;
  }>(
    `with candidates as (
       select org_id, id from sandboxes
       where worker_id = $1 and runtime is not null and destroyed_at is null
         and (removed_at is not null or status in ('starting', 'running', 'stopping'))
       union
       select org_id, id from sandboxes
       where worker_id is null and runtime = $2 and destroyed_at is null
         and (removed_at is not null or status = 'stopping')
       union
       select org_id, id from sandboxes
       join unnest($3::uuid[], $4::uuid[]) as held (org_id, id) using (org_id, id)
       where worker_id = $1 and destroyed_at is null
     )
     select s.org_id, s.id, s.status, s.removed_at is not null as removed, s.run_id,
       r.max_duration_secs::float8, r.idle_timeout_secs::float8,
       r.stop_reason, coalesce(r.worker_id = $1, false) as placed,
       r.started_at, r.started_at is not null as run_started,
       r.id is not null and r.end_reason is null as run_open
     from candidates c
     join sandboxes s on s.org_id = c.org_id and s.id = c.id
     left join runs r on r.org_id = s.org_id and r.id = s.run_id
     order by s.changed_at`,
    [worker.id, worker.runtime, held.map(({ orgId }) => orgId), held.map(({ sandboxId }) => sandboxId)],
  );
  return rows.map((row) => ({
    orgId: row.org_id,
    sandboxId: row.id,
    maxDurationSecs: row.max_duration_secs,
    idleTimeoutSecs: row.idle_timeout_secs,
    stopReason: row.stop_reason,
    startedAt: row.started_at,
    wanted: {
      status: row.status,
      removed: row.removed,
      runId: row.run_id,
      runStarted: row.run_started,
      runOpen: row.run_open,
      placed: row.placed,
    },
  }));
}

/** What a sandbox was resolved to run. Large, and needed only to start it: not part of the look at all of them. */
export async function readRunSpec(sql: Sql, orgId: string, id: string): Promise<RunSpec> {
  const { rows } = await sql.query<{ run_spec: RunSpec }>(
    'select run_spec from sandboxes where org_id = $1 and id = $2',
    [orgId, id],
  );
  return rows[0]!.run_spec;
}

/** Ephemeral sandboxes that ended before `before`; locked, passing over those another worker holds. */
export async function lockLingering(sql: Sql, before: Instant, limit: number): Promise<LockedSandbox[]> {
  const { rows } = await sql.query<LockedSandbox & Record<string, unknown>>(
    `select ${SANDBOX_COLUMNS}, run_spec, runtime, run_id, removed_at from sandboxes
     where ephemeral and removed_at is null and runtime is not null and status in ('stopped', 'failed')
       and changed_at <= $1
     order by changed_at
     limit $2
     for update skip locked`,
    [before, limit],
  );
  return rows;
}

/** How many sandboxes that are not at rest belong to runtimes other than this one, which nobody here reconciles. */
export async function leftToOtherRuntimes(
  sql: Sql,
  runtime: string,
): Promise<{ name: string; count: number }[]> {
  const { rows } = await sql.query<{ name: string; count: number }>(
    `select runtime as name, count(*) as count from sandboxes
     where runtime is not null and runtime <> $1 and destroyed_at is null
       and (removed_at is not null or status in ('starting', 'running', 'stopping'))
     group by runtime`,
    [runtime],
  );
  return rows;
}
