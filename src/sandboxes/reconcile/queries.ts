import { SEPARATE } from '../../db/planner-hints.js';
import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import type { Instant } from '../../lib/instant.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { isPauseReason } from '../lifecycle/paused.js';
import { LOCKED_COLUMNS, withSpecs, type LockedSandbox, type UnparsedRow } from '../queries.js';
import { parseSpec } from '../../spec/text.js';
import type { Wanted } from './decide.js';

export interface ReconcileRow {
  orgId: string;
  sandboxId: string;
  changedAt: Instant;
  maxDurationSecs: number | null;
  idleTimeoutSecs: number | null;
  startedAt: Instant | null;
  /** The current run continues the memory of a pause. */
  resumes: boolean;
  /** Null: nobody asked the run to end. */
  stopReason: string | null;
  /** The command of the run has no end in the store. */
  commandRuns: boolean;
  wanted: Omit<Wanted, 'quiet'>;
}

export type SandboxRef = { orgId: string; sandboxId: string };

/** The same columns in each branch, so that `union` removes duplicates. */
const CANDIDATE = `s.org_id, s.id, s.status, s.removed_at, s.run_id, s.changed_at, s.command ->> 'status' as command_status, s.paused_at,
       s.takes is not null and not s.warm as gets_parts`;

const UNSETTLED = `runtime is not null and destroyed_at is null
       and (removed_at is not null or status in ('starting', 'running', 'stopping'))`;
const UNPLACED = `select ${CANDIDATE} from sandboxes s
     where worker_id is null and runtime = $2 and destroyed_at is null
       and (removed_at is not null or status = 'stopping')`;
const PAUSED = `select ${CANDIDATE} from sandboxes s
     where worker_id = $1 and paused_at is not null and destroyed_at is null`;
const NAMED = `select ${CANDIDATE} from unnest($3::uuid[], $4::uuid[]) as held (org_id, id)
     cross join lateral (
       select * from sandboxes own where own.org_id = held.org_id and own.id = held.id ${SEPARATE}
     ) s
     where worker_id = $1 and destroyed_at is null`;

/**
 * The unsettled and the paused sandboxes of a worker, oldest change first, and those of `held`. Unplaced sandboxes that
 * must end come too: any worker of the runtime may end them.
 *
 * With misleading statistics the planner read all 100,000 sandboxes in each pass to find 300 held ones. With fresh ones
 * both ways take 1 ms. `npm run bench -- hints` prints them.
 */
export async function sandboxesToReconcile(
  sql: Sql,
  worker: { id: string; runtime: string },
  held: readonly SandboxRef[],
): Promise<ReconcileRow[]> {
  return readRows(
    sql,
    `select ${CANDIDATE} from sandboxes s
     where worker_id = $1 and ${UNSETTLED}
     union
     ${PAUSED}
     union
     ${UNPLACED}
     union
     ${NAMED}`,
    [worker.id, worker.runtime, held.map(({ orgId }) => orgId), held.map(({ sandboxId }) => sandboxId)],
  );
}

/** Sandboxes of a worker: the named ones, those that changed after `since`, and unplaced ones that must end. */
export async function changedSandboxes(
  sql: Sql,
  worker: { id: string; runtime: string },
  named: readonly SandboxRef[],
  since: Instant,
): Promise<ReconcileRow[]> {
  return readRows(
    sql,
    `select ${CANDIDATE} from sandboxes s
     where worker_id = $1 and ${UNSETTLED} and changed_at > $5
     union
     ${UNPLACED}
     union
     ${NAMED}`,
    [
      worker.id,
      worker.runtime,
      named.map(({ orgId }) => orgId),
      named.map(({ sandboxId }) => sandboxId),
      since,
    ],
  );
}

async function readRows(sql: Sql, candidates: string, values: unknown[]): Promise<ReconcileRow[]> {
  const { rows } = await sql.query<{
    org_id: string;
    id: string;
    changed_at: Instant;
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
    command_runs: boolean;
    lacks_parts: boolean;
    resumes: boolean;
    paused: boolean;
  }>(
    prepared(
      `with candidates as (${candidates})
     select s.org_id, s.id, s.changed_at, s.status, s.removed_at is not null as removed, s.run_id,
       r.max_duration_secs::float8, r.idle_timeout_secs::float8,
       r.stop_reason, coalesce(r.worker_id = $1, false) as placed,
       r.started_at, r.started_at is not null as run_started,
       r.id is not null and r.end_reason is null as run_open,
       coalesce(s.command_status = 'running' and r.command = 'stays', false) as command_runs,
       coalesce(s.gets_parts and not r.handed_over, false) as lacks_parts,
       coalesce(r.resumes, false) as resumes, s.paused_at is not null as paused
     from candidates s
     left join lateral (select * from runs r where r.org_id = s.org_id and r.id = s.run_id ${SEPARATE}) r on true
     order by s.changed_at`,
      values,
    ),
  );
  return rows.map((row) => ({
    orgId: row.org_id,
    sandboxId: row.id,
    changedAt: row.changed_at,
    maxDurationSecs: row.max_duration_secs,
    idleTimeoutSecs: row.idle_timeout_secs,
    stopReason: row.stop_reason,
    startedAt: row.started_at,
    resumes: row.resumes,
    commandRuns: row.command_runs,
    wanted: {
      status: row.status,
      removed: row.removed,
      runId: row.run_id,
      runStarted: row.run_started,
      runOpen: row.run_open,
      placed: row.placed,
      lacksParts: row.lacks_parts,
      keepsMemory: isPauseReason(row.stop_reason),
      paused: row.paused,
    },
  }));
}

export interface FoundSpec {
  name: string;
  /** It waits in a pool. */
  is_member: boolean;
  run_spec: RunSpec;
  has_secrets: boolean;
  has_credentials: boolean;
  caps: Record<string, number>;
  most_runs: number | null;
  records_network: boolean;
}

/** Only for a start: the specification is too large for each pass. */
export async function readRunSpec(sql: Sql, orgId: string, id: string): Promise<FoundSpec> {
  const found = await findRunSpec(sql, orgId, id);
  if (!found) throw new Error(`there is no sandbox ${id}`);
  return found;
}

/** Undefined: the organization has no such sandbox. */
export async function findRunSpec(sql: Sql, orgId: string, id: string): Promise<FoundSpec | undefined> {
  const { rows } = await sql.query<{
    name: string;
    is_member: boolean;
    run_spec: string;
    has_secrets: boolean;
    has_credentials: boolean;
    caps: Record<string, number> | null;
    most_runs: number | null;
    records_network: boolean;
  }>(
    prepared(
      `select s.name, s.warm as is_member, run_spec::text, exists (
         select from sandbox_secrets x where x.org_id = s.org_id and x.sandbox_id = s.id) as has_secrets,
         exists (select from registry_credentials c where c.org_id = s.org_id) as has_credentials,
         (select json_object_agg(v.id, v.capacity_gib) from sandbox_volumes m
           join volumes v on v.org_id = m.org_id and v.id = m.volume_id
           where m.org_id = s.org_id and m.sandbox_id = s.id and v.capacity_gib is not null) as caps,
         (select max_concurrent_ephemeral_running + max_concurrent_persistent_running
           from quotas q where q.org_id = s.org_id) as most_runs,
         (select network_record from orgs o where o.id = s.org_id) as records_network
       from sandboxes s where org_id = $1 and id = $2`,
      [orgId, id],
    ),
  );
  if (!rows[0]) return undefined;
  const { run_spec, caps, ...rest } = rows[0];
  return { ...rest, run_spec: parseSpec(run_spec) as RunSpec, caps: caps ?? {} };
}

/** Locks ephemeral sandboxes that ended before `before`. Skips locked sandboxes. */
export async function lockLingering(sql: Sql, before: Instant, limit: number): Promise<LockedSandbox[]> {
  const { rows } = await sql.query<UnparsedRow<LockedSandbox>>(
    `select ${LOCKED_COLUMNS} from sandboxes s
     where s.ephemeral and s.removed_at is null and s.runtime is not null and s.status in ('stopped', 'failed')
       and s.changed_at <= $1
     order by s.changed_at
     limit $2
     for update skip locked`,
    [before, limit],
  );
  return rows.map((row) => withSpecs<LockedSandbox>(row));
}

/** The numbers of unsettled sandboxes of other runtimes, which this service does not reconcile. */
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

/** `run_id`: of the run that the worker has, or that waits to continue the memory of a pause there. */
export async function lockSandboxesOn(
  tx: Sql,
  workerId: string,
): Promise<{ org_id: string; id: string; run_id: string | null; is_paused: boolean }[]> {
  const { rows } = await tx.query<{ org_id: string; id: string; run_id: string | null; is_paused: boolean }>(
    `select s.org_id, s.id, r.id as run_id, s.paused_at is not null as is_paused
     from sandboxes s
     left join runs r on r.org_id = s.org_id and r.id = s.run_id and r.end_reason is null
       and (r.worker_id = $1 or r.worker_id is null and r.resumes)
     where s.worker_id = $1 and s.destroyed_at is null
     order by s.org_id, s.id
     for update of s`,
    [workerId],
  );
  return rows;
}

/** Detaches all sandboxes of a worker that is given up. Removed ones become destroyed, as their disks are gone. */
export async function detachSandboxes(tx: Sql, workerId: string, at: Instant): Promise<void> {
  await tx.query(
    `update sandboxes set worker_id = null, disk_mib = 0, changed_at = $2,
       destroyed_at = case when removed_at is null then destroyed_at else coalesce(destroyed_at, $2) end
     where worker_id = $1`,
    [workerId, at],
  );
}
