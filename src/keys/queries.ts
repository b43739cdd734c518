import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface KeyRow {
  org_id: string;
  id: string;
  name: string;
  prefix: string;
  created_at: Instant;
  revoked_at: Instant | null;
}

export async function insertKey(
  sql: Sql,
  key: { org_id: string; id: string; name: string; prefix: string; hash: Buffer; created_at: Instant },
): Promise<void> {
  await sql.query(
    `insert into api_keys (org_id, id, name, prefix, hash, created_at)
     values ($1, $2, $3, $4, $5, $6)`,
    [key.org_id, key.id, key.name, key.prefix, key.hash, key.created_at],
  );
}

export async function findLiveKeys(
  sql: Sql,
  prefix: string,
): Promise<{ org_id: string; id: string; name: string; hash: Buffer }[]> {
  const { rows } = await sql.query<{ org_id: string; id: string; name: string; hash: Buffer }>(
    'select org_id, id, name, hash from api_keys where prefix = $1 and revoked_at is null',
    [prefix],
  );
  return rows;
}

/** All keys of an organization, or of all when none is named; oldest first. */
export async function listKeys(
  sql: Sql,
  orgId: string | undefined,
): Promise<(KeyRow & { org_slug: string })[]> {
  const { rows } = await sql.query<KeyRow & { org_slug: string }>(
    `select k.org_id, k.id, k.name, k.prefix, k.created_at, k.revoked_at, o.slug as org_slug
     from api_keys k
     join orgs o on o.id = k.org_id
     where $1::uuid is null or k.org_id = $1
     order by k.created_at, k.id`,
    [orgId ?? null],
  );
  return rows;
}

/** Locks the key. The id alone names it: the operator, not an organization, asks. */
export async function lockKey(sql: Sql, id: string): Promise<KeyRow | undefined> {
  const { rows } = await sql.query<KeyRow & Record<string, unknown>>(
    'select org_id, id, name, prefix, created_at, revoked_at from api_keys where id = $1 for update',
    [id],
  );
  return rows[0];
}

export async function setRevoked(sql: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await sql.query('update api_keys set revoked_at = $3 where org_id = $1 and id = $2', [orgId, id, at]);
}
