import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

/** The size of each piece but the last one. */
export const PIECE_BYTES = 256 * 1024;

export interface ContextKey {
  orgId: string;
  templateId: string;
}

export async function insertPiece(
  sql: Sql,
  { orgId, templateId }: ContextKey,
  position: number,
  bytes: Buffer,
  at: Instant,
): Promise<void> {
  await sql.query(
    `insert into template_contexts (org_id, template_id, position, bytes, received_at) values ($1, $2, $3, $4, $5)`,
    [orgId, templateId, position, bytes, at],
  );
}

/** Undefined: the context ends before. */
export async function readPiece(
  sql: Sql,
  { orgId, templateId }: ContextKey,
  position: number,
): Promise<Buffer | undefined> {
  const { rows } = await sql.query<{ bytes: Buffer }>(
    'select bytes from template_contexts where org_id = $1 and template_id = $2 and position = $3',
    [orgId, templateId, position],
  );
  return rows[0]?.bytes;
}

export async function deleteContext(sql: Sql, { orgId, templateId }: ContextKey): Promise<void> {
  await sql.query('delete from template_contexts where org_id = $1 and template_id = $2', [
    orgId,
    templateId,
  ]);
}

/** Deletes those of builds that have ended, and those whose request failed. */
export async function deleteLeftContexts(sql: Sql, receivedBefore: Instant): Promise<void> {
  await sql.query(
    `delete from template_contexts c where c.received_at < $1 and not exists (
       select from templates t
       where t.org_id = c.org_id and t.id = c.template_id and t.status in ('queued', 'building')
     )`,
    [receivedBefore],
  );
}
