import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import { write, type WriteTarget } from '../db/write-batch.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { Instant } from '../lib/instant.js';
import type { RunSpec } from '../spec/run-spec.js';
import type { NextRun } from './lifecycle/next-run.js';
import { SANDBOX, type SandboxRow, type SandboxTextRow } from './row.js';
import type { SandboxSpec } from '../spec/specification.js';
import type { SandboxStatus } from '../spec/statuses.js';
import { encodeSpec, parseSpec, SPEC_FORMAT } from '../spec/text.js';

export interface LockedSandbox extends SandboxRow {
  run_spec: RunSpec | null;
  run_id: string | null;
  /** The admitted run that follows the current one. Valid only while the sandbox is `stopping`. */
  next_run: NextRun | null;
  /** It counts as running until its memory is saved. Valid only while the sandbox is `stopping`. */
  pausing: boolean;
  removed_at: Instant | null;
}

/** For queries in which `s` is the table. */
export const LOCKED_COLUMNS = `${SANDBOX.parsedColumns}, s.run_spec::text, s.run_id, s.next_run, s.pausing, s.removed_at`;

export interface NewSandbox extends SandboxRow {
  run_spec: RunSpec;
  run_id: string | null;
  changed_at: Instant;
  /** The pool that starts it for a later create. Default: none. */
  pool_id?: string;
  /** The engine that has the snapshot of its disk. Its first start takes the disk. Default: it has no place yet. */
  worker_id?: string;
}

export async function insertSandbox(target: WriteTarget, sandbox: NewSandbox): Promise<void> {
  const { run_spec, run_id, changed_at, pool_id = null, worker_id } = sandbox;
  const columns = [
    ...SANDBOX.columnNames,
    'spec_format',
    'run_spec',
    'run_id',
    'changed_at',
    'pool_id',
    'warm',
    ...(worker_id === undefined ? [] : ['worker_id']),
  ];
  const values = [
    ...SANDBOX.stored(sandbox),
    SPEC_FORMAT,
    stringifyExact(run_spec),
    run_id,
    changed_at,
    pool_id,
    pool_id !== null,
    ...(worker_id === undefined ? [] : [worker_id]),
  ];
  await write(
    target,
    (p) =>
      `insert into sandboxes (${columns.join(', ')}) values (${values.map((value) => p(value)).join(', ')})`,
  );
}

export async function insertLabels(
  target: WriteTarget,
  { org_id, id, created_at }: { org_id: string; id: string; created_at: Instant },
  labels: Record<string, string>,
): Promise<void> {
  if (Object.keys(labels).length === 0) return;
  await write(
    target,
    (p) => `insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
     select ${p(org_id)}, key, value, ${p(created_at)}, ${p(id)}
     from unnest(${p(Object.keys(labels))}::text[], ${p(Object.values(labels))}::text[]) as label (key, value)`,
  );
}

export async function replaceLabels(
  sql: Sql,
  sandbox: { org_id: string; id: string; created_at: Instant },
  labels: Record<string, string>,
): Promise<void> {
  await sql.query('delete from sandbox_labels where org_id = $1 and sandbox_id = $2', [
    sandbox.org_id,
    sandbox.id,
  ]);
  await insertLabels(sql, sandbox, labels);
}

export async function insertMounted(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  volumeIds: readonly string[],
): Promise<void> {
  if (volumeIds.length === 0) return;
  await write(
    target,
    (p) => `insert into sandbox_volumes (org_id, volume_id, sandbox_id)
     select ${p(orgId)}, volume_id, ${p(sandboxId)} from unnest(${p(volumeIds)}::uuid[]) as volume_id
     on conflict do nothing`,
  );
}

/** `requiredLabels`: a sandbox without all of these labels is not found. */
export type SandboxKey = ({ id: string } | { name: string }) & {
  requiredLabels?: Readonly<Record<string, string>>;
  /** Also a sandbox of a pool that no create has taken: no caller may reach it. */
  orWarm?: true;
};

/** `will_start`: an admitted run follows the current one. */
export async function getSandbox(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<(SandboxRow & { will_start: boolean }) | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<UnparsedRow<SandboxRow & { will_start: boolean }>>(
    `select ${SANDBOX.parsedColumns}, s.status = 'stopping' and s.next_run is not null as will_start
     from sandboxes s where s.org_id = $1 and ${condition} and s.removed_at is null`,
    [orgId, ...values],
  );
  return rows[0] && withSpecs<SandboxRow & { will_start: boolean }>(rows[0]);
}

/**
 * A usual specification has 1,500 stored bytes. PostgreSQL compresses to a ninetieth at most, so a short read sends at
 * most 360 KB of a sandbox.
 */
const SHORT_SPEC_BYTES = 4_000;
const SHORT_COLUMNS = SANDBOX.textColumns({ maxSpecBytes: SHORT_SPEC_BYTES });
const WHOLE_COLUMNS = SANDBOX.textColumns();

/** For `SANDBOX.json`. Not `whole`: a short read, without long specifications. */
export function textColumns({ whole }: { whole: boolean }): string {
  return whole ? WHOLE_COLUMNS : SHORT_COLUMNS;
}

export async function getSandboxText(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
  { whole }: { whole: boolean },
): Promise<SandboxTextRow | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<SandboxTextRow>(
    prepared(
      `select ${textColumns({ whole })} from sandboxes s
       where s.org_id = $1 and ${condition} and s.removed_at is null`,
      [orgId, ...values],
    ),
  );
  return rows[0];
}

/** Short reads, in any order, without missing sandboxes. */
export async function getSandboxTexts(
  sql: Sql,
  orgId: string,
  by: 'id' | 'name',
  values: readonly string[],
): Promise<SandboxTextRow[]> {
  const { rows } = await sql.query<SandboxTextRow>(
    prepared(
      `select ${SHORT_COLUMNS} from sandboxes s
       where s.org_id = $1 and s.${by} = any ($2::${by === 'id' ? 'uuid' : 'text'}[]) and s.removed_at is null and not s.warm`,
      [orgId, values],
    ),
  );
  return rows;
}

/** `worker_id`: null before the first placement. */
export interface SandboxPlace {
  id: string;
  name: string;
  status: string;
  worker_id: string | null;
  run_id: string | null;
  /** The parts of its specification that its container lacks, as it was started for a pool. Null: it was not. */
  late: Pick<RunSpec, 'env' | 'scripts' | 'workdir'> | null;
  /** Process 1 does not have these parts yet. */
  lacks_parts: boolean;
  /** Its idleness has paused it, so a session resumes it. */
  resumes_for_session: boolean;
}

export async function getWorkerOf(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<SandboxPlace | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<SandboxPlace & Record<string, unknown>>(
    `select s.id, s.name, s.status, s.worker_id, s.run_id,
       case when s.pool_id is not null then json_build_object('env', s.run_spec -> 'env',
         'scripts', s.run_spec -> 'scripts', 'workdir', s.run_spec -> 'workdir') end as late,
       s.takes is not null and not exists (
         select from runs r where r.org_id = s.org_id and r.id = s.run_id and r.handed_over) as lacks_parts,
       s.status in ('starting', 'stopping', 'stopped') and exists (
         select from runs r where r.org_id = s.org_id and r.stop_reason = 'idle_paused'
           and (s.paused_at is not null or r.end_reason is null)
           and r.id = case when s.paused_at is null then s.run_id else (select p.run_id from pauses p
             where p.org_id = s.org_id and p.sandbox_id = s.id and p.to_at is null) end) as resumes_for_session
     from sandboxes s
     where s.org_id = $1 and ${condition} and s.removed_at is null`,
    [orgId, ...values],
  );
  return rows[0];
}

/** Locks the row, which serializes the operations on a sandbox. */
export async function lockSandbox(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<LockedSandbox | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<UnparsedRow<LockedSandbox>>(
    prepared(
      `select ${LOCKED_COLUMNS} from sandboxes s
       where s.org_id = $1 and ${condition} and s.removed_at is null
       for update`,
      [orgId, ...values],
    ),
  );
  return rows[0] && withSpecs<LockedSandbox>(rows[0]);
}

/** A row of the driver: its JSON parser rounds large integers, so specifications are text. */
export type UnparsedRow<Row extends SandboxRow> = Record<string, unknown> &
  Omit<Row, 'spec' | 'run_spec'> & { spec: string | null; run_spec?: string | null };

export function withSpecs<Row extends SandboxRow>({ spec, run_spec, ...rest }: UnparsedRow<Row>): Row {
  const parsed = {
    spec: parsedSpec(spec),
    ...(run_spec === undefined ? {} : { run_spec: parsedSpec(run_spec) }),
  };
  return { ...rest, ...parsed } as unknown as Row;
}

function parsedSpec(text: string | null): unknown {
  return text === null ? null : parseSpec(text);
}

export function keyed(key: SandboxKey): { condition: string; values: unknown[] } {
  const [found, value] = 'id' in key ? ['s.id = $2::uuid', key.id] : ['s.name = $2::text', key.name];
  const condition = key.orWarm ? found : `${found} and not s.warm`;
  const labels = key.requiredLabels;
  if (labels === undefined || Object.keys(labels).length === 0) return { condition, values: [value] };
  return {
    condition: `${condition} and s.spec::jsonb -> 'labels' @> $3::jsonb`,
    values: [value, JSON.stringify(labels)],
  };
}

interface SandboxChange {
  name?: string;
  slug?: string;
  status?: SandboxStatus;
  status_reason?: SandboxRow['status_reason'];
  last_failure_message?: string | null;
  stop_reason?: SandboxRow['stop_reason'];
  stop_message?: string | null;
  paused_at?: null;
  command?: SandboxRow['command'];
  image_digest?: string;
  run_id?: string;
  next_run?: NextRun | null;
  pausing?: boolean;
  started_at?: Instant | null;
  stopped_at?: Instant | null;
  removed_at?: Instant;
  destroyed_at?: Instant;
}

export async function updateSandboxRow(
  target: WriteTarget,
  orgId: string,
  id: string,
  change: SandboxChange,
  at: Instant,
): Promise<void> {
  await write(target, (p) => {
    const columns = Object.entries({ ...change, changed_at: at }).map(
      ([name, value]) => `${name} = ${p(value)}`,
    );
    return `update sandboxes set ${columns.join(', ')} where org_id = ${p(orgId)} and id = ${p(id)}`;
  });
}

/**
 * The transaction has locked the row. A trigger clears the format with each change of `spec`, for writers that do not
 * know formats. So a second statement sets it.
 */
export async function updateSpecs(
  tx: Sql,
  orgId: string,
  id: string,
  { spec, run_spec }: { spec: SandboxSpec; run_spec: RunSpec | null },
  at: Instant,
): Promise<void> {
  await tx.query(
    'update sandboxes set spec = $3, run_spec = $4, changed_at = $5 where org_id = $1 and id = $2',
    [orgId, id, encodeSpec(spec), run_spec && stringifyExact(run_spec), at],
  );
  await tx.query('update sandboxes set spec_format = $3 where org_id = $1 and id = $2', [
    orgId,
    id,
    SPEC_FORMAT,
  ]);
}

/** A removed sandbox keeps its specification, but no filter finds it. */
export async function deleteSandboxRelations(target: WriteTarget, orgId: string, id: string): Promise<void> {
  for (const table of ['sandbox_labels', 'sandbox_volumes']) {
    await write(target, (p) => `delete from ${table} where org_id = ${p(orgId)} and sandbox_id = ${p(id)}`);
  }
}

/** The volumes that running sandboxes of a worker may write to. */
export async function writableMounts(
  sql: Sql,
  workerId: string,
): Promise<{ orgId: string; sandboxId: string; volumeId: string }[]> {
  const { rows } = await sql.query<{ orgId: string; sandboxId: string; volumeId: string }>(
    `select s.org_id as "orgId", s.id as "sandboxId", mount ->> 'volumeId' as "volumeId"
     from sandboxes s cross join lateral jsonb_array_elements(s.run_spec -> 'mounts') mount
     where s.worker_id = $1 and s.removed_at is null and s.status in ('starting', 'running')
       and mount ? 'volumeId' and mount -> 'options' ->> 'readonly' is distinct from 'true'
     order by s.changed_at desc`,
    [workerId],
  );
  return rows;
}
