import type { Reader } from '../access/reader.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { SandboxStatus } from '../spec/statuses.js';
import type { SnapshotStatus } from './state.js';

/** `fork`: the shared disk of copies of a sandbox. Callers see the operation, and not the snapshot. */
type SnapshotPurpose = 'snapshot' | 'fork';

export interface SnapshotRow {
  org_id: string;
  id: string;
  purpose: SnapshotPurpose;
  /** The copies that were asked for. Null: it is no fork. */
  fork_count: number | null;
  name: string;
  labels: Record<string, string>;
  status: SnapshotStatus;
  replaces: boolean;
  /** The ready snapshot that its completion deletes. Null: there was none at the request. */
  replaced_id: string | null;
  record_integrity: boolean;
  /** Null: it was imported. */
  sandbox_id: string | null;
  sandbox_name: string | null;
  image: string;
  /** Null: the engine does not tell. */
  image_digest: string | null;
  parent_id: string | null;
  parent_digest: string | null;
  runtime: string;
  worker_id: string;
  actor: EventActor;
  /** The build that needs it. No caller finds such a snapshot. Null: a caller asked for it. */
  template_id: string | null;
  attempts: number;
  size_bytes: number | null;
  /** The part of them that is charged for the snapshot of an earlier step of a build. */
  shared_bytes: number;
  digest: string | null;
  content_digest: string | null;
  /** In MiB. Null: the content is a layer of an image, or not there yet. */
  disk_mib: number | null;
  error_code: string | null;
  error_message: string | null;
  created_at: Instant;
  updated_at: Instant;
  completed_at: Instant | null;
  purge_at: Instant | null;
}

/** A snapshot that callers can use, or restore. */
export type CompleteSnapshot = SnapshotRow & {
  status: 'ready' | 'deleting';
  size_bytes: number;
  digest: string;
  content_digest: string;
  completed_at: Instant;
};

/** A snapshot of a sandbox. */
export type CaptureRow = SnapshotRow & { sandbox_id: string; sandbox_name: string };

export const COLUMNS = `org_id, id, purpose, fork_count, name, labels, status, replaces, replaced_id, record_integrity, sandbox_id,
  sandbox_name, image, image_digest, parent_id, parent_digest, runtime, worker_id, actor, template_id, attempts, size_bytes,
  shared_bytes, digest, content_digest, disk_mib, error_code, error_message, created_at, updated_at, completed_at, purge_at`;

type Row = SnapshotRow & Record<string, unknown>;

export type SnapshotKey = { id: string } | { name: string };

/** A name is that of a ready snapshot. The others are found by id. */
function keyed(key: SnapshotKey): { condition: string; value: string } {
  if ('id' in key) return { condition: 'id = $3::uuid', value: key.id };
  return { condition: `name = $3::text and status = 'ready'`, value: key.name };
}

const SEEN =
  "org_id = $1 and labels @> $2::jsonb and removed_at is null and purpose = 'snapshot' and template_id is null";

export async function findSnapshot(
  sql: Sql,
  { orgId, labels }: Reader,
  key: SnapshotKey,
  lock: '' | 'for update' | 'for share' = '',
): Promise<SnapshotRow | undefined> {
  const { condition, value } = keyed(key);
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from snapshots where ${SEEN} and ${condition} ${lock}`,
    [orgId, JSON.stringify(labels), value],
  );
  return rows[0];
}

export function isComplete(row: SnapshotRow): row is CompleteSnapshot {
  return row.status === 'ready' || row.status === 'deleting';
}

export interface SnapshotPage {
  statuses: readonly SnapshotStatus[];
  labels: Readonly<Record<string, string>>;
  after: readonly [createdAt: string, id: string] | undefined;
  limit: number;
}

/** The newest first. */
export async function listSnapshots(
  sql: Sql,
  reader: Reader,
  { statuses, labels, after, limit }: SnapshotPage,
): Promise<SnapshotRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from snapshots
     where ${SEEN} and labels @> $3::jsonb and status = any ($4::text[])
       and ($5::timestamptz is null or (created_at, id) < ($5, $6::uuid))
     order by created_at desc, id desc limit $7`,
    [
      reader.orgId,
      JSON.stringify(reader.labels),
      JSON.stringify(labels),
      statuses,
      after?.[0] ?? null,
      after?.[1] ?? null,
      limit,
    ],
  );
  return rows;
}

export type NewSnapshot = Omit<
  SnapshotRow,
  | 'status'
  | 'attempts'
  | 'size_bytes'
  | 'shared_bytes'
  | 'digest'
  | 'content_digest'
  | 'disk_mib'
  | 'error_code'
  | 'error_message'
  | 'updated_at'
  | 'completed_at'
  | 'purge_at'
>;

export async function insertSnapshot(sql: Sql, snapshot: NewSnapshot): Promise<SnapshotRow> {
  const { rows } = await sql.query<Row>(
    `insert into snapshots (org_id, id, name, labels, status, replaces, record_integrity, sandbox_id, sandbox_name, image,
       image_digest, parent_id, parent_digest, runtime, worker_id, actor, created_at, updated_at, replaced_id, template_id,
       purpose, fork_count)
     values ($1, $2, $3, $4, 'queued', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, $17, $18, $19, $20)
     returning ${COLUMNS}`,
    [
      snapshot.org_id,
      snapshot.id,
      snapshot.name,
      JSON.stringify(snapshot.labels),
      snapshot.replaces,
      snapshot.record_integrity,
      snapshot.sandbox_id,
      snapshot.sandbox_name,
      snapshot.image,
      snapshot.image_digest,
      snapshot.parent_id,
      snapshot.parent_digest,
      snapshot.runtime,
      snapshot.worker_id,
      JSON.stringify(snapshot.actor),
      snapshot.created_at,
      snapshot.replaced_id,
      snapshot.template_id,
      snapshot.purpose,
      snapshot.fork_count,
    ],
  );
  return rows[0]!;
}

interface SnapshotChange {
  status?: SnapshotStatus;
  attempts?: number;
  size_bytes?: number;
  shared_bytes?: number;
  digest?: string;
  content_digest?: string;
  disk_mib?: number | null;
  error_code?: string;
  error_message?: string;
  completed_at?: Instant;
  sampled_at?: Instant | null;
  purge_at?: Instant | null;
  removed_at?: Instant;
  erased_at?: Instant;
}

export async function updateSnapshot(
  sql: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
  change: SnapshotChange,
  at: Instant,
): Promise<SnapshotRow> {
  const columns = Object.keys(change).map((column, index) => `${column} = $${index + 4}`);
  const { rows } = await sql.query<Row>(
    `update snapshots set ${[...columns, 'updated_at = $3'].join(', ')} where org_id = $1 and id = $2
     returning ${COLUMNS}`,
    [org_id, id, at, ...Object.values(change)],
  );
  return rows[0]!;
}

/** The engine of a sandbox, and the snapshot that it was made from. */
export async function getSource(
  sql: Sql,
  orgId: string,
  sandboxId: string,
): Promise<{ worker_id: string | null; parent_id: string | null; parent_digest: string | null } | undefined> {
  const { rows } = await sql.query<{
    worker_id: string | null;
    parent_id: string | null;
    parent_digest: string | null;
  }>(
    `select s.worker_id, s.disk_snapshot_id as parent_id, p.digest as parent_digest
     from sandboxes s left join snapshots p on p.org_id = s.org_id and p.id = s.disk_snapshot_id
     where s.org_id = $1 and s.id = $2`,
    [orgId, sandboxId],
  );
  return rows[0];
}

export interface CandidateRow {
  id: string;
  name: string;
  slug: string;
  status: SandboxStatus;
  image: string;
  created_at: Instant;
}

/** The sandboxes that could be captured, in the order of their creation, the newest first. */
export async function listCandidates(
  sql: Sql,
  { orgId, labels }: Reader,
  runtime: string,
  { after, limit }: Pick<SnapshotPage, 'after' | 'limit'>,
): Promise<CandidateRow[]> {
  const { rows } = await sql.query<CandidateRow & Record<string, unknown>>(
    `select s.id, s.name, s.slug, s.status, s.run_spec ->> 'image' as image, s.created_at from sandboxes s
     where s.org_id = $1 and s.removed_at is null and not s.warm and s.runtime = $3 and s.status = any ($4::text[])
       and s.worker_id is not null and s.started_at is not null and s.paused_at is null
       and ($2::jsonb = '{}' or s.spec::jsonb -> 'labels' @> $2::jsonb)
       and ($5::timestamptz is null or (s.created_at, s.id) < ($5, $6::uuid))
     order by s.created_at desc, s.id desc limit $7`,
    [orgId, JSON.stringify(labels), runtime, CAPTURABLE, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

/** The statuses of sandboxes whose disk does not change for another reason. */
export const CAPTURABLE: readonly SandboxStatus[] = ['running', 'stopped', 'failed'];

/** Those that wait for their capture, or are captured. `forks`: of these, the operations of forks. */
export async function countUnfinished(sql: Sql, orgId: string): Promise<{ all: number; forks: number }> {
  const { rows } = await sql.query<{ all: number; forks: number }>(
    `select count(*)::int as all, count(*) filter (where purpose = 'fork')::int as forks
     from snapshots where org_id = $1 and status in ('queued', 'in_progress')`,
    [orgId],
  );
  return rows[0]!;
}
