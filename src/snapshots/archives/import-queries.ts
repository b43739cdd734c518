import type { EventActor } from '../../audit/events/schema.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import { COLUMNS, type SnapshotRow } from '../queries.js';

type Row = SnapshotRow & Record<string, unknown>;

export interface NewImport {
  org_id: string;
  id: string;
  name: string;
  labels: Record<string, string>;
  image: string;
  image_digest: string;
  runtime: string;
  worker_id: string;
  actor: EventActor;
  created_at: Instant;
}

/** Its content is proven before it is complete, so the descriptor has the digest. */
export async function insertImport(sql: Sql, snapshot: NewImport): Promise<void> {
  await sql.query(
    `insert into snapshots (org_id, id, name, labels, status, replaces, record_integrity, image, image_digest, runtime,
       worker_id, actor, created_at, updated_at)
     values ($1, $2, $3, $4, 'in_progress', false, true, $5, $6, $7, $8, $9, $10, $10)`,
    [
      snapshot.org_id,
      snapshot.id,
      snapshot.name,
      JSON.stringify(snapshot.labels),
      snapshot.image,
      snapshot.image_digest,
      snapshot.runtime,
      snapshot.worker_id,
      JSON.stringify(snapshot.actor),
      snapshot.created_at,
    ],
  );
}

/** False: the import has ended. */
export async function renewImport(
  sql: Sql,
  { org_id, id }: Pick<SnapshotRow, 'org_id' | 'id'>,
  at: Instant,
): Promise<boolean> {
  const { rows } = await sql.query(
    `update snapshots set updated_at = $3 where org_id = $1 and id = $2 and status = 'in_progress' returning id`,
    [org_id, id, at],
  );
  return rows.length > 0;
}

/** The imports that no process has renewed since `before`. */
export async function lockLostImports(tx: Sql, engineId: string, before: Instant): Promise<SnapshotRow[]> {
  const { rows } = await tx.query<Row>(
    `select ${COLUMNS} from snapshots
     where worker_id = $1 and status = 'in_progress' and sandbox_id is null and updated_at < $2
     for update skip locked`,
    [engineId, before],
  );
  return rows;
}
