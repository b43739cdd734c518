import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface NewSession {
  org_id: string;
  hash: Buffer;
  id: string;
  key_id: string;
  secret_prefix: string;
  created_at: Instant;
  expires_at: Instant;
}

export async function insertSession(sql: Sql, session: NewSession): Promise<void> {
  const { org_id, hash, id, key_id, secret_prefix, created_at, expires_at } = session;
  await sql.query(
    `insert into console_sessions (org_id, hash, id, key_id, secret_prefix, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7)`,
    [org_id, hash, id, key_id, secret_prefix, created_at, expires_at],
  );
}

/** Deletes all sessions of a key but the latest ones. Returns the ids of the deleted ones. */
export async function deleteOldest(
  sql: Sql,
  orgId: string,
  keyId: string,
  { keep }: { keep: number },
): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `delete from console_sessions
     where org_id = $1 and hash in (
       select hash from console_sessions where org_id = $1 and key_id = $2
       order by created_at desc, hash offset $3)
     returning id`,
    [orgId, keyId, keep],
  );
  return rows.map(({ id }) => id);
}

/** Undefined if it has ended before. */
export async function deleteSession(sql: Sql, orgId: string, hash: Buffer): Promise<string | undefined> {
  const { rows } = await sql.query<{ id: string }>(
    'delete from console_sessions where org_id = $1 and hash = $2 returning id',
    [orgId, hash],
  );
  return rows[0]?.id;
}

export async function deleteSessions(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from console_sessions where expires_at <= $1', [expired]);
}
