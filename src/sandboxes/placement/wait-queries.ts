import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import { firstIdOf } from '../../runs/run-id.js';

/** `worker_id`: the worker with the disks of the sandboxes; null: any worker. */
export interface WaitingTotals {
  runtime: string;
  worker_id: string | null;
  runs: number;
  vcpus: number;
  memory_mib: number;
}

const WAITS = 'r.worker_id is null and r.started_at is null and r.end_reason is null';
const WAITING_SANDBOX =
  "s.org_id = r.org_id and s.id = r.sandbox_id and s.run_id = r.id and s.status = 'starting' and s.removed_at is null";

export async function countWaiting(sql: Sql): Promise<WaitingTotals[]> {
  const { rows } = await sql.query<WaitingTotals & Record<string, unknown>>(
    `select s.runtime, s.worker_id, count(*) as runs, sum(r.vcpus)::float8 as vcpus, sum(r.memory_mib)::float8 as memory_mib
     from runs r join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS}
     group by s.runtime, s.worker_id`,
  );
  return rows;
}

/** The waiting starts by the word of the latest placement about them; null: none has looked at them yet. */
export async function countWaitReasons(sql: Sql): Promise<{ reason: string | null; runs: number }[]> {
  const { rows } = await sql.query<{ reason: string | null; runs: number }>(
    `select s.status_reason as reason, count(*) as runs
     from runs r join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS} group by s.status_reason order by 2 desc`,
  );
  return rows;
}

const MOST_WORDS = 5;

/** The most frequent reasons of waiting starts, in words with figures. */
export async function readWaitWords(sql: Sql): Promise<{ words: string; runs: number }[]> {
  const { rows } = await sql.query<{ words: string; runs: number }>(
    `select s.last_failure_message as words, count(*) as runs
     from runs r join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS} and s.last_failure_message is not null
     group by 1 order by 2 desc, 1 limit $1`,
    [MOST_WORDS],
  );
  return rows;
}

export async function isShortOfRoom(sql: Sql, runtime: string): Promise<boolean> {
  const { rows } = await sql.query(
    `select from runs r join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS} and s.runtime = $1 and s.status_reason = 'insufficient_capacity' limit 1`,
    [runtime],
  );
  return rows.length > 0;
}

export interface LongWait {
  org_id: string;
  sandbox_id: string;
  name: string;
  run_id: string;
  /** A live worker could run it. */
  has_worker: boolean;
  vcpus: number;
  memory_mib: number;
  disk_mib: number;
}

/**
 * Locks sandboxes of unmarked runs admitted before this time, in equal parts of the organizations. Skips locked
 * sandboxes.
 */
export async function lockLongWaits(
  tx: Sql,
  runtime: string,
  beforeMillis: number,
  limit: number,
): Promise<LongWait[]> {
  const unnoted =
    'worker_id is null and started_at is null and end_reason is null and not wait_noted and id < $2';
  const { rows } = await tx.query<LongWait & Record<string, unknown>>(
    `with recursive orgs as (
       (select org_id from runs where ${unnoted} order by org_id limit 1)
       union all
       select (select org_id from runs where ${unnoted} and org_id > o.org_id order by org_id limit 1)
       from orgs o where o.org_id is not null
     ),
     first as (
       select q.* from orgs o
       cross join lateral (
         select org_id, id from runs r where org_id = o.org_id and ${unnoted}
           and exists (select from sandboxes s where ${WAITING_SANDBOX} and s.runtime = $1)
         order by id
         limit greatest(1, $3 / (select count(org_id) from orgs))
       ) q
       limit $3
     )
     select r.org_id, r.sandbox_id, s.name, r.id as run_id, r.vcpus, r.memory_mib, r.disk_mib,
       exists (
         select from workers w
         where w.runtime = $1 and w.expires_at > clock_timestamp() and (s.worker_id is null or s.worker_id = w.id)
           and coalesce(s.run_spec -> 'demands', '[]') - w.capabilities = '[]') as has_worker
     from first join runs r on r.org_id = first.org_id and r.id = first.id
     join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS} and s.runtime = $1 and not r.wait_noted
     order by r.org_id, r.id
     for update of s skip locked`,
    [runtime, firstIdOf(beforeMillis), limit],
  );
  return rows;
}

/** A sandbox without all of the labels is left out. */
export interface OneSandbox {
  orgId: string;
  sandboxId: string;
  requiredLabels?: Readonly<Record<string, string>> | undefined;
}

export interface Unwanted {
  org_id: string;
  sandbox_id: string;
  run_id: string;
  words: string | null;
}

/**
 * Locks sandboxes whose waiting runs nobody wants. Skips locked ones. `words`: null before a placement has considered
 * it.
 */
export async function lockUnwanted(
  tx: Sql,
  { before, most, only }: { before: Instant; most: number; only?: OneSandbox | undefined },
): Promise<Unwanted[]> {
  const isLabelled = only?.requiredLabels && Object.keys(only.requiredLabels).length > 0;
  const { rows } = await tx.query<Unwanted & Record<string, unknown>>(
    `select r.org_id, r.sandbox_id, r.id as run_id, s.last_failure_message as words
     from runs r join sandboxes s on ${WAITING_SANDBOX}
     where ${WAITS} and r.wanted_until <= $1 ${only ? 'and r.org_id = $3 and r.sandbox_id = $4' : ''}
       ${isLabelled ? `and s.spec::jsonb -> 'labels' @> $5::jsonb` : ''}
     order by r.org_id, r.id limit $2
     for update of s skip locked`,
    [
      before,
      most,
      ...(only ? [only.orgId, only.sandboxId] : []),
      ...(isLabelled ? [JSON.stringify(only?.requiredLabels)] : []),
    ],
  );
  return rows;
}
