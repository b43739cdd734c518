import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Sealed } from '../secrets/keyring.js';

export interface CredentialRow {
  org_id: string;
  id: string;
  pattern: string;
  description: string | null;
  username: string;
  /** Null: the keys of secrets were lost. */
  sealed: Sealed | null;
  created_at: Instant;
  created_by: EventActor;
  updated_at: Instant;
}

type RawRow = Omit<CredentialRow, 'sealed'> & {
  [column: string]: unknown;
  key_id: string | null;
  sealed: Buffer | null;
};

const COLUMNS =
  'org_id, id, pattern, description, username, key_id, sealed, created_at, created_by, updated_at';

function toRow({ key_id: keyId, sealed: bytes, ...row }: RawRow): CredentialRow {
  return { ...row, sealed: keyId === null || bytes === null ? null : { keyId, bytes } };
}

/** Throws the violation of `registry_credentials_pattern` for a pattern that is stored already. */
export async function insertCredential(
  tx: Sql,
  row: Omit<CredentialRow, 'sealed'> & { sealed: Sealed },
): Promise<void> {
  await tx.query(
    `insert into registry_credentials (${COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [
      row.org_id,
      row.id,
      row.pattern,
      row.description,
      row.username,
      row.sealed.keyId,
      row.sealed.bytes,
      row.created_at,
      JSON.stringify(row.created_by),
      row.updated_at,
    ],
  );
}

/** Locks the organization until the transaction ends, so that no other credential is added meanwhile. */
export async function countCredentials(tx: Sql, orgId: string): Promise<number> {
  await tx.query('select 1 from orgs where id = $1 for update', [orgId]);
  const { rows } = await tx.query<{ count: number }>(
    'select count(*) from registry_credentials where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}

export async function getCredential(sql: Sql, orgId: string, id: string): Promise<CredentialRow | undefined> {
  return first(sql, orgId, id, '');
}

export async function lockCredential(tx: Sql, orgId: string, id: string): Promise<CredentialRow | undefined> {
  return first(tx, orgId, id, 'for update');
}

async function first(sql: Sql, orgId: string, id: string, lock: string): Promise<CredentialRow | undefined> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from registry_credentials where org_id = $1 and id = $2 ${lock}`,
    [orgId, id],
  );
  return rows[0] && toRow(rows[0]);
}

/** The credential with the longest of these patterns. */
export async function findMatching(
  sql: Sql,
  orgId: string,
  patterns: readonly string[],
): Promise<CredentialRow | undefined> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from registry_credentials
     where org_id = $1 and pattern = any($2::text[])
     order by length(pattern) desc
     limit 1`,
    [orgId, patterns],
  );
  return rows[0] && toRow(rows[0]);
}

/** Oldest first, after `after` (created_at, id). */
export async function getCredentials(
  sql: Sql,
  orgId: string,
  after: readonly [Instant, string] | undefined,
  limit: number,
): Promise<CredentialRow[]> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from registry_credentials
     where org_id = $1 and ($2::timestamptz is null or (created_at, id) > ($2, $3::uuid))
     order by created_at, id
     limit $4`,
    [orgId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows.map(toRow);
}

export async function updateCredentialRow(tx: Sql, row: CredentialRow): Promise<void> {
  await tx.query(
    `update registry_credentials
     set description = $3, username = $4, key_id = $5, sealed = $6, updated_at = $7
     where org_id = $1 and id = $2`,
    [
      row.org_id,
      row.id,
      row.description,
      row.username,
      row.sealed?.keyId ?? null,
      row.sealed?.bytes ?? null,
      row.updated_at,
    ],
  );
}

export async function deleteCredentialRow(tx: Sql, orgId: string, id: string): Promise<void> {
  await tx.query('delete from registry_credentials where org_id = $1 and id = $2', [orgId, id]);
}

/** Locks up to `limit` credentials, of any organization, that are not sealed under this key. */
export async function lockSealedElsewhere(tx: Sql, keyId: string, limit: number): Promise<CredentialRow[]> {
  const { rows } = await tx.query<RawRow>(
    `select ${COLUMNS} from registry_credentials where key_id <> $1 limit $2 for update`,
    [keyId, limit],
  );
  return rows.map(toRow);
}

/** Deletes every sealed password. Returns the organization of each. */
export async function clearPasswords(tx: Sql, at: Instant): Promise<{ org_id: string }[]> {
  const { rows } = await tx.query<{ org_id: string }>(
    `update registry_credentials set key_id = null, sealed = null, updated_at = $1
     where key_id is not null returning org_id`,
    [at],
  );
  return rows;
}
