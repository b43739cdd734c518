import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { COLUMNS, type CaptureRow, type CompleteSnapshot, type SnapshotRow } from './queries.js';

/**
 * The oldest one of each organization that waits for its capture or is captured on this engine, the oldest first.
 * Leaves out those of `except`.
 */
export async function nextOfEach(
  sql: Sql,
  engineId: string,
  except: readonly string[],
): Promise<CaptureRow[]> {
  const { rows } = await sql.query<CaptureRow & Record<string, unknown>>(
    `select ${COLUMNS} from (
       select distinct on (org_id) * from snapshots
       where worker_id = $1 and status in ('queued', 'in_progress') and id <> all ($2::uuid[])
         and sandbox_id is not null
       order by org_id, created_at, id
     ) first
     order by created_at, id`,
    [engineId, except],
  );
  return rows;
}

/** Those of any engine that were requested before, and have not ended. */
export async function overdueSnapshots(
  sql: Sql,
  before: Instant,
  limit: number,
): Promise<Pick<SnapshotRow, 'org_id' | 'id'>[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `select org_id, id from snapshots
     where status in ('queued', 'in_progress') and created_at <= $1
     order by created_at limit $2`,
    [before, limit],
  );
  return rows;
}

export async function lockSnapshot(
  tx: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
): Promise<SnapshotRow | undefined> {
  const { rows } = await tx.query<SnapshotRow & Record<string, unknown>>(
    `select ${COLUMNS} from snapshots where org_id = $1 and id = $2 and removed_at is null for update`,
    [org_id, id],
  );
  return rows[0];
}

/** Undefined: it is forgotten. */
export async function getOutcome(
  sql: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
): Promise<Pick<SnapshotRow, 'status' | 'error_code' | 'error_message'> | undefined> {
  const { rows } = await sql.query<SnapshotRow & Record<string, unknown>>(
    'select status, error_code, error_message from snapshots where org_id = $1 and id = $2',
    [org_id, id],
  );
  return rows[0];
}

export async function lockDueSnapshots(
  tx: Sql,
  engineId: string,
  at: Instant,
  limit: number,
): Promise<{ org_id: string; id: string; name: string }[]> {
  const { rows } = await tx.query<{ org_id: string; id: string; name: string }>(
    `select org_id, id, name from snapshots
     where worker_id = $1 and status = 'deleting' and removed_at is null and purge_at <= $2
     order by purge_at limit $3
     for update skip locked`,
    [engineId, at, limit],
  );
  return rows;
}

/** Those of which the engine may have something. `is_purged`: no caller finds it any more. */
export async function lockSnapshotsOn(
  tx: Sql,
  engineId: string,
): Promise<(SnapshotRow & { is_purged: boolean })[]> {
  const { rows } = await tx.query<SnapshotRow & { is_purged: boolean } & Record<string, unknown>>(
    `select ${COLUMNS}, removed_at is not null as is_purged from snapshots
     where worker_id = $1 and erased_at is null
     order by id for update`,
    [engineId],
  );
  return rows;
}

/** A sandbox of the engine has a disk that was made from the snapshot `p`, or will have one. */
const NEEDED = `exists (select from sandboxes s where s.disk_snapshot_id = p.id and s.destroyed_at is null)`;

/** A snapshot of which the engine may have something. */
export interface KeptSnapshot {
  org_id: string;
  id: string;
  /** No caller finds it, so the engine need not have it. */
  is_over: boolean;
  /** A sandbox of the engine has a disk that was made from it, or will have one. */
  is_needed: boolean;
}

export async function keptSnapshots(sql: Sql, engineId: string): Promise<KeptSnapshot[]> {
  const { rows } = await sql.query<KeptSnapshot & Record<string, unknown>>(
    `select p.org_id, p.id, p.removed_at is not null or p.status = 'failed' as is_over,
       ${NEEDED} as is_needed
     from snapshots p where p.worker_id = $1 and p.erased_at is null`,
    [engineId],
  );
  return rows;
}

export async function setErased(
  tx: Sql,
  refs: readonly Pick<SnapshotRow, 'org_id' | 'id'>[],
  at: Instant,
): Promise<void> {
  await tx.query(
    `update snapshots p set erased_at = $3 from unnest($1::uuid[], $2::uuid[]) r (org_id, id)
     where p.org_id = r.org_id and p.id = r.id`,
    [refs.map(({ org_id }) => org_id), refs.map(({ id }) => id), at],
  );
  for (const ref of refs) await passSharing(tx, ref);
}

/**
 * Charges the snapshots of builds above an erased one with its own bytes, from their next reading on. Those that it
 * shared with one below stay shared. Waits for a snapshot that is completed meanwhile.
 */
async function passSharing(tx: Sql, { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>): Promise<void> {
  await tx.query(
    `with recursive above (id, erased_at) as (
       select id, erased_at from snapshots where org_id = $1 and parent_id = $2 and template_id is not null
       union all
       select p.id, p.erased_at from above join snapshots p on p.parent_id = above.id
       where above.erased_at is not null and p.org_id = $1 and p.template_id is not null
     )
     update snapshots p set shared_bytes = least(p.size_bytes, erased.shared_bytes) from above, snapshots erased
     where p.org_id = $1 and p.id = above.id and erased.org_id = $1 and erased.id = $2`,
    [org_id, id],
  );
}

/** Those whose size is to be charged again: the ready ones, and deleted ones that sandboxes need. */
export async function dueForReading(
  sql: Sql,
  engineId: string,
  dueAt: Instant,
): Promise<Pick<SnapshotRow, 'org_id' | 'id'>[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `select org_id, id from snapshots p
     where worker_id = $1 and erased_at is null and (status = 'ready' or (status = 'deleting' and ${NEEDED}))
       and (sampled_at is null or sampled_at <= $2)
     order by sampled_at nulls first`,
    [engineId, dueAt],
  );
  return rows;
}

/** The deleted ones that are charged, although no sandbox needs them any more. */
export async function chargedInVain(
  sql: Sql,
  engineId: string,
): Promise<Pick<SnapshotRow, 'org_id' | 'id'>[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `select org_id, id from snapshots p
     where worker_id = $1 and erased_at is null and status = 'deleting' and sampled_at is not null and not ${NEEDED}`,
    [engineId],
  );
  return rows;
}

/** A complete snapshot whose data the engine has. */
export async function lockKept(
  tx: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
): Promise<CompleteSnapshot | undefined> {
  const { rows } = await tx.query<CompleteSnapshot & Record<string, unknown>>(
    `select ${COLUMNS} from snapshots
     where org_id = $1 and id = $2 and status in ('ready', 'deleting') and erased_at is null for update`,
    [org_id, id],
  );
  return rows[0];
}

/** The bytes of a snapshot of a build that the nearest one below is charged with. */
export async function sharedBytesOf(
  tx: Sql,
  { org_id, template_id, parent_id }: Pick<SnapshotRow, 'org_id' | 'template_id' | 'parent_id'>,
): Promise<number> {
  if (template_id === null || parent_id === null) return 0;
  const { rows } = await tx.query<{ bytes: number }>(
    `select case when erased_at is null then size_bytes else shared_bytes end as bytes from snapshots
     where org_id = $1 and id = $2 and template_id is not null and size_bytes is not null`,
    [org_id, parent_id],
  );
  return rows[0]?.bytes ?? 0;
}

export async function lockReady(
  tx: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
): Promise<CompleteSnapshot | undefined> {
  const { rows } = await tx.query<CompleteSnapshot & Record<string, unknown>>(
    `select ${COLUMNS} from snapshots
     where org_id = $1 and id = $2 and status = 'ready' and removed_at is null for update`,
    [org_id, id],
  );
  return rows[0];
}

/** The operation that ends, and the ready snapshot that it replaces. One statement locks both, in the order of ids. */
export async function lockForCompletion(
  tx: Sql,
  { org_id, id, replaced_id }: Pick<SnapshotRow, 'org_id' | 'id' | 'replaced_id'>,
): Promise<{ row: SnapshotRow | undefined; replaced: SnapshotRow | undefined }> {
  const { rows } = await tx.query<SnapshotRow & Record<string, unknown>>(
    `select ${COLUMNS} from snapshots
     where org_id = $1 and removed_at is null and (id = $2 or (id = $3 and status = 'ready'))
     order by id for update`,
    [org_id, id, replaced_id],
  );
  return { row: rows.find((one) => one.id === id), replaced: rows.find((one) => one.id === replaced_id) };
}

/** Forgets operations that failed long ago, and left nothing. Usage names the other ones. */
export async function deleteFailedSnapshots(sql: Sql, before: Instant): Promise<void> {
  await sql.query(
    `delete from snapshots where erased_at is not null and updated_at < $1 and status = 'failed'`,
    [before],
  );
}

export async function setSampled(
  sql: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
  at: Instant | null,
): Promise<void> {
  await sql.query('update snapshots set sampled_at = $3 where org_id = $1 and id = $2', [org_id, id, at]);
}
