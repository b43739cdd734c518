import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface VolumeRow {
  id: string;
  kind: 'host' | 'managed';
  name: string | null;
  labels: Record<string, string>;
  capacity_gib: number | null;
  /** By the latest reading. */
  used_bytes: number | null;
  status: 'active' | 'deleting';
  created_at: Instant;
  updated_at: Instant;
  purge_at: Instant | null;
}

const COLUMNS = 'id, kind, name, labels, capacity_gib, used_bytes, status, created_at, updated_at, purge_at';

type Row = VolumeRow & Record<string, unknown>;

export async function insertVolume(
  sql: Sql,
  volume: Pick<VolumeRow, 'id' | 'kind' | 'name' | 'labels' | 'capacity_gib' | 'created_at'> & {
    org_id: string;
  },
): Promise<VolumeRow> {
  const { rows } = await sql.query<Row>(
    `insert into volumes (org_id, id, kind, name, labels, capacity_gib, status, created_at, updated_at)
     values ($1, $2, $3, $4, $5, $6, 'active', $7, $7)
     returning ${COLUMNS}`,
    [
      volume.org_id,
      volume.id,
      volume.kind,
      volume.name,
      JSON.stringify(volume.labels),
      volume.capacity_gib,
      volume.created_at,
    ],
  );
  return rows[0]!;
}

/** Clients take the first volume of a name. */
export async function listVolumes(
  sql: Sql,
  orgId: string,
  { deleting }: { deleting: boolean },
): Promise<VolumeRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from volumes
     where org_id = $1 and removed_at is null and (status = 'active' or (status = 'deleting' and $2::boolean))
     order by status, created_at, id`,
    [orgId, deleting],
  );
  return rows;
}

export async function getHostVolume(sql: Sql, orgId: string): Promise<VolumeRow | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from volumes where org_id = $1 and kind = 'host' and removed_at is null`,
    [orgId],
  );
  return rows[0];
}

export async function getVolume(sql: Sql, orgId: string, id: string): Promise<VolumeRow | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from volumes
     where org_id = $1 and id = $2 and status <> 'copying' and removed_at is null`,
    [orgId, id],
  );
  return rows[0];
}

export async function lockVolume(sql: Sql, orgId: string, id: string): Promise<VolumeRow | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from volumes
     where org_id = $1 and id = $2 and status <> 'copying' and removed_at is null for update`,
    [orgId, id],
  );
  return rows[0];
}

/** Locks them against deletion while a sandbox is created. */
export async function lockActiveVolumes(
  sql: Sql,
  orgId: string,
  names: readonly string[],
): Promise<{ id: string; name: string; capacity_gib: number | null }[]> {
  const { rows } = await sql.query<{ id: string; name: string; capacity_gib: number | null }>(
    `select id, name, capacity_gib from volumes
     where org_id = $1 and name = any ($2::text[]) and status = 'active' and removed_at is null
     order by id
     for share`,
    [orgId, names],
  );
  return rows;
}

export async function setDeleting(
  sql: Sql,
  orgId: string,
  id: string,
  at: Instant,
  purgeAt: Instant,
): Promise<void> {
  await sql.query(
    `update volumes set status = 'deleting', updated_at = $3, purge_at = $4 where org_id = $1 and id = $2`,
    [orgId, id, at, purgeAt],
  );
}

export async function setActive(sql: Sql, orgId: string, id: string, at: Instant): Promise<VolumeRow> {
  const { rows } = await sql.query<Row>(
    `update volumes set status = 'active', updated_at = $3, purge_at = null
     where org_id = $1 and id = $2
     returning ${COLUMNS}`,
    [orgId, id, at],
  );
  return rows[0]!;
}

export async function updateVolumeRow(
  sql: Sql,
  orgId: string,
  id: string,
  { capacity_gib, labels }: Pick<VolumeRow, 'capacity_gib' | 'labels'>,
  at: Instant,
): Promise<VolumeRow> {
  const { rows } = await sql.query<Row>(
    `update volumes set capacity_gib = $3, labels = $4, updated_at = $5
     where org_id = $1 and id = $2
     returning ${COLUMNS}`,
    [orgId, id, capacity_gib, JSON.stringify(labels), at],
  );
  return rows[0]!;
}

export async function lockDueVolumes(
  sql: Sql,
  at: Instant,
  limit: number,
): Promise<{ org_id: string; id: string; name: string | null }[]> {
  const { rows } = await sql.query<{ org_id: string; id: string; name: string | null }>(
    `select org_id, id, name from volumes
     where status = 'deleting' and removed_at is null and purge_at <= $1
     order by purge_at
     limit $2
     for update skip locked`,
    [at, limit],
  );
  return rows;
}

export async function setRemoved(sql: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await sql.query('update volumes set removed_at = $3 where org_id = $1 and id = $2', [orgId, id, at]);
}

export async function isRemoved(sql: Sql, orgId: string, id: string): Promise<boolean> {
  const { rows } = await sql.query(
    'select 1 from volumes where org_id = $1 and id = $2 and removed_at is not null',
    [orgId, id],
  );
  return rows.length > 0;
}

export async function sandboxesMounting(sql: Sql, orgId: string, volumeId: string): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `select s.name from sandbox_volumes m
     join sandboxes s on s.org_id = m.org_id and s.id = m.sandbox_id
     where m.org_id = $1 and m.volume_id = $2 and s.removed_at is null
     order by s.name`,
    [orgId, volumeId],
  );
  return rows.map(({ name }) => name);
}
