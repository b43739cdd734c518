import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { Instant } from '../lib/instant.js';
import type { RunSpec } from '../runtimes/runtime.js';
import type { NextRun } from './next-run.js';
import { SHORT_COLUMNS, SHOWN_COLUMNS, type ShownRow } from './present-text.js';
import type { SandboxResponse, SandboxSpec, SandboxStatus } from './spec/schema.js';
import { parseSpec, specToKeep } from './spec/text.js';

/** What answers are made of. */
export interface SandboxRow {
  org_id: string;
  id: string;
  name: string;
  slug: string;
  status: SandboxStatus;
  status_reason: SandboxResponse['status_reason'];
  ephemeral: boolean;
  created_at: Instant;
  last_failure_message: string | null;
  spec: SandboxSpec | null;
  started_at: Instant | null;
  stopped_at: Instant | null;
  /** Null for imported history. */
  runtime: string | null;
}

/** What operations decide by. */
export interface LockedSandbox extends SandboxRow {
  run_spec: RunSpec | null;
  run_id: string | null;
  /** The run that is admitted to follow the one that ends. Counts only while it is `stopping`. */
  next_run: NextRun | null;
  removed_at: Instant | null;
}

const SANDBOX_COLUMNS = `org_id, id, name, slug, status, status_reason, ephemeral, created_at, last_failure_message,
  spec::text, started_at, stopped_at, runtime`;
export const LOCKED_COLUMNS = `${SANDBOX_COLUMNS}, run_spec::text, run_id, next_run, removed_at`;

export interface NewSandbox extends SandboxRow {
  spec: SandboxSpec;
  run_spec: RunSpec;
  runtime: string;
  run_id: string | null;
  changed_at: Instant;
}

export async function insertSandbox(sql: Sql, sandbox: NewSandbox): Promise<void> {
  await sql.query(
    `insert into sandboxes (org_id, id, name, slug, status, status_reason, ephemeral, created_at, changed_at, spec, run_spec,
       runtime, run_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
    [
      ...[sandbox.org_id, sandbox.id, sandbox.name, sandbox.slug, sandbox.status, sandbox.status_reason],
      ...[sandbox.ephemeral, sandbox.created_at, sandbox.changed_at, specToKeep(sandbox.spec)],
      ...[stringifyExact(sandbox.run_spec), sandbox.runtime, sandbox.run_id],
    ],
  );
}

export async function insertLabels(
  sql: Sql,
  { org_id, id, created_at }: { org_id: string; id: string; created_at: Instant },
  labels: Record<string, string>,
): Promise<void> {
  if (Object.keys(labels).length === 0) return;
  await sql.query(
    `insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
     select $1, key, value, $2, $3 from unnest($4::text[], $5::text[]) as label (key, value)`,
    [org_id, created_at, id, Object.keys(labels), Object.values(labels)],
  );
}

/** In place of those it has. */
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
  sql: Sql,
  orgId: string,
  sandboxId: string,
  volumeIds: readonly string[],
): Promise<void> {
  if (volumeIds.length === 0) return;
  await sql.query(
    `insert into sandbox_volumes (org_id, volume_id, sandbox_id)
     select $1, volume_id, $2 from unnest($3::uuid[]) as volume_id
     on conflict do nothing`,
    [orgId, sandboxId, volumeIds],
  );
}

/** Which sandbox. `within`: only when it has all of these labels; else it is not found. */
export type SandboxKey = ({ id: string } | { name: string }) & {
  within?: Readonly<Record<string, string>>;
};

/** `will_start`: a run is admitted to follow the one that ends. */
export async function getSandbox(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<(SandboxRow & { will_start: boolean }) | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<AsText<SandboxRow & { will_start: boolean }>>(
    `select ${SANDBOX_COLUMNS}, status = 'stopping' and next_run is not null as will_start from sandboxes
     where org_id = $1 and ${condition} and removed_at is null`,
    [orgId, ...values],
  );
  return rows[0] && withSpecs<SandboxRow & { will_start: boolean }>(rows[0]);
}

/** The same for `sandboxText`. `whole`: else `isShort` tells whether its specification was too long. */
export async function showSandbox(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
  { whole }: { whole: boolean },
): Promise<ShownRow | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<ShownRow>({
    ...prepared(
      `select ${whole ? SHOWN_COLUMNS : SHORT_COLUMNS} from sandboxes s
       where org_id = $1 and ${condition} and removed_at is null`,
      [orgId, ...values],
    ),
    rowMode: 'array',
  });
  return rows[0];
}

/** The same for several, in any order, without those that are not found. */
export async function showSandboxes(
  sql: Sql,
  orgId: string,
  by: 'id' | 'name',
  values: readonly string[],
): Promise<ShownRow[]> {
  const { rows } = await sql.query<ShownRow>({
    ...prepared(
      `select ${SHORT_COLUMNS} from sandboxes s
       where org_id = $1 and ${by} = any ($2::${by === 'id' ? 'uuid' : 'text'}[]) and removed_at is null`,
      [orgId, values],
    ),
    rowMode: 'array',
  });
  return rows;
}

/** Where a sandbox is. `worker_id` is null for one that no worker has held yet. */
export async function getPlace(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<{ id: string; status: string; worker_id: string | null } | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<{ id: string; status: string; worker_id: string | null }>(
    `select id, status, worker_id from sandboxes
     where org_id = $1 and ${condition} and removed_at is null`,
    [orgId, ...values],
  );
  return rows[0];
}

/** Locks the row until the transaction ends, so that of two operations on one sandbox the second sees the first. */
export async function lockSandbox(
  sql: Sql,
  orgId: string,
  key: SandboxKey,
): Promise<LockedSandbox | undefined> {
  const { condition, values } = keyed(key);
  const { rows } = await sql.query<AsText<LockedSandbox>>(
    prepared(
      `select ${LOCKED_COLUMNS} from sandboxes
     where org_id = $1 and ${condition} and removed_at is null
     for update`,
      [orgId, ...values],
    ),
  );
  return rows[0] && withSpecs<LockedSandbox>(rows[0]);
}

/** A row as the driver gives it: its specifications are text, because the driver's JSON rounds large integers. */
export type AsText<Row extends SandboxRow> = Record<string, unknown> &
  Omit<Row, 'spec' | 'run_spec'> & { spec: string | null; run_spec?: string | null };

export function withSpecs<Row extends SandboxRow>({ spec, run_spec, ...rest }: AsText<Row>): Row {
  const parsed = {
    spec: parsedSpec(spec),
    ...(run_spec === undefined ? {} : { run_spec: parsedSpec(run_spec) }),
  };
  return { ...rest, ...parsed } as unknown as Row;
}

function parsedSpec(text: string | null): unknown {
  return text === null ? null : parseSpec(text);
}

function keyed(key: SandboxKey): { condition: string; values: unknown[] } {
  const [condition, value] = 'id' in key ? ['id = $2::uuid', key.id] : ['name = $2::text', key.name];
  if (key.within === undefined || Object.keys(key.within).length === 0) return { condition, values: [value] };
  return {
    condition: `${condition} and spec::jsonb -> 'labels' @> $3::jsonb`,
    values: [value, JSON.stringify(key.within)],
  };
}

interface SandboxChange {
  name?: string;
  slug?: string;
  status?: SandboxStatus;
  status_reason?: SandboxRow['status_reason'];
  last_failure_message?: string | null;
  spec?: SandboxSpec;
  run_spec?: RunSpec;
  run_id?: string;
  next_run?: NextRun | null;
  started_at?: Instant | null;
  stopped_at?: Instant | null;
  removed_at?: Instant;
  destroyed_at?: Instant;
}

/** Changes what is named, of a row that the transaction has locked. */
export async function updateSandbox(
  sql: Sql,
  orgId: string,
  id: string,
  change: SandboxChange,
  at: Instant,
): Promise<void> {
  const columns = Object.keys(change).map((column, index) => `${column} = $${index + 4}`);
  const { spec, run_spec } = change;
  const values = Object.values({
    ...change,
    ...(spec ? { spec: specToKeep(spec) } : {}),
    ...(run_spec ? { run_spec: stringifyExact(run_spec) } : {}),
  });
  await sql.query(
    `update sandboxes set ${[...columns, 'changed_at = $3'].join(', ')} where org_id = $1 and id = $2`,
    [orgId, id, at, ...values],
  );
}

/** A removed sandbox is found by no filter and mounts nothing. What it was stays in its spec. */
export async function forgetSandboxRelations(sql: Sql, orgId: string, id: string): Promise<void> {
  await sql.query('delete from sandbox_labels where org_id = $1 and sandbox_id = $2', [orgId, id]);
  await sql.query('delete from sandbox_volumes where org_id = $1 and sandbox_id = $2', [orgId, id]);
}
