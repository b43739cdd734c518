import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

/** A volume that a fork fills. */
export interface CopiedVolume {
  id: string;
  name: string;
  capacity_gib: number | null;
  fork_id: string;
  copied_from: string;
  /** Its sandbox exists. */
  is_mounted: boolean;
}

/** Volumes whose files are copied. The transaction has locked them. */
export interface CopiedSource {
  id: string;
  name: string;
  labels: Record<string, string>;
  capacity_gib: number | null;
}

export async function copySources(sql: Sql, orgId: string, ids: readonly string[]): Promise<CopiedSource[]> {
  const { rows } = await sql.query<CopiedSource & Record<string, unknown>>(
    `select id, name, labels, capacity_gib from volumes where org_id = $1 and id = any ($2::uuid[]) order by id`,
    [orgId, ids],
  );
  return rows;
}

/** Those of the names that a volume has. */
export async function takenNames(sql: Sql, orgId: string, names: readonly string[]): Promise<Set<string>> {
  const { rows } = await sql.query<{ name: string }>(
    `select name from volumes
     where org_id = $1 and name = any ($2::text[]) and status <> 'deleting' and removed_at is null`,
    [orgId, names],
  );
  return new Set(rows.map(({ name }) => name));
}

/** No caller finds them until the fork has filled them. */
export async function insertCopies(
  sql: Sql,
  orgId: string,
  forkId: string,
  copies: readonly { id: string; name: string; source: CopiedSource }[],
  at: Instant,
): Promise<void> {
  if (copies.length === 0) return;
  await sql.query(
    `insert into volumes (org_id, id, kind, name, labels, capacity_gib, status, fork_id, copied_from, created_at, updated_at)
     select $1, c.id, 'managed', c.name, c.labels::json, c.capacity_gib, 'copying', $2, c.copied_from, $3, $3
     from unnest($4::uuid[], $5::text[], $6::text[], $7::integer[], $8::uuid[])
       as c (id, name, labels, capacity_gib, copied_from)`,
    [
      orgId,
      forkId,
      at,
      copies.map(({ id }) => id),
      copies.map(({ name }) => name),
      copies.map(({ source }) => JSON.stringify(source.labels)),
      copies.map(({ source }) => source.capacity_gib),
      copies.map(({ source }) => source.id),
    ],
  );
}

const COPY = `v.id, v.name, v.capacity_gib, v.fork_id, v.copied_from,
  exists (select from sandbox_volumes m where m.org_id = v.org_id and m.volume_id = v.id) as is_mounted`;
const OF_FORK = `v.org_id = $1 and v.fork_id = $2 and v.status = 'copying' and v.removed_at is null`;

export async function listCopiedVolumes(sql: Sql, orgId: string, forkId: string): Promise<CopiedVolume[]> {
  const { rows } = await sql.query<CopiedVolume & Record<string, unknown>>(
    `select ${COPY} from volumes v where ${OF_FORK} order by v.id`,
    [orgId, forkId],
  );
  return rows;
}

/** The transaction has locked the operation, and nothing locks them before it. */
export async function lockCopies(tx: Sql, orgId: string, forkId: string): Promise<CopiedVolume[]> {
  const { rows } = await tx.query<CopiedVolume & Record<string, unknown>>(
    `select ${COPY} from volumes v where ${OF_FORK} order by v.id for update`,
    [orgId, forkId],
  );
  return rows;
}

export async function setCopied(sql: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await sql.query(
    `update volumes set status = 'active', fork_id = null, copied_from = null, updated_at = $3
     where org_id = $1 and id = $2`,
    [orgId, id, at],
  );
}

/** No caller has found them, and nobody was charged for them. Their data is removed later. */
export async function removeCopies(sql: Sql, orgId: string, forkId: string, at: Instant): Promise<void> {
  await sql.query(`update volumes v set removed_at = $3 where ${OF_FORK}`, [orgId, forkId, at]);
}

export async function removedCopies(sql: Sql, orgId: string, forkId: string): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select id from volumes where org_id = $1 and fork_id = $2 and status = 'copying' and removed_at is not null`,
    [orgId, forkId],
  );
  return rows.map(({ id }) => id);
}
