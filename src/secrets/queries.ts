import type { Sql } from '../db/pool.js';
import type { Sealed } from './keyring.js';

export interface SecretRow {
  org_id: string;
  sandbox_id: string;
  name: string;
  sealed: Sealed;
}

interface RawRow {
  [column: string]: unknown;
  org_id: string;
  sandbox_id: string;
  name: string;
  key_id: string;
  sealed: Buffer;
}

const COLUMNS = 'org_id, sandbox_id, name, key_id, sealed';

function toRow({ key_id: keyId, sealed: bytes, ...row }: RawRow): SecretRow {
  return { ...row, sealed: { keyId, bytes } };
}

/** Those of one sandbox. */
export async function insertSecrets(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  secrets: readonly Pick<SecretRow, 'name' | 'sealed'>[],
): Promise<void> {
  if (secrets.length === 0) return;
  await sql.query(
    `insert into sandbox_secrets (${COLUMNS})
     select $1, $2, s.* from unnest($3::text[], $4::text[], $5::bytea[]) as s (name, key_id, sealed)`,
    [
      orgId,
      sandboxId,
      secrets.map(({ name }) => name),
      secrets.map(({ sealed }) => sealed.keyId),
      secrets.map(({ sealed }) => sealed.bytes),
    ],
  );
}

export async function readSecrets(sql: Sql, orgId: string, sandboxId: string): Promise<SecretRow[]> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from sandbox_secrets where org_id = $1 and sandbox_id = $2`,
    [orgId, sandboxId],
  );
  return rows.map(toRow);
}

/** Forgets one secret of a sandbox, or all. */
export async function deleteSecrets(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  name: string | null,
): Promise<void> {
  await sql.query(
    'delete from sandbox_secrets where org_id = $1 and sandbox_id = $2 and ($3::text is null or name = $3)',
    [orgId, sandboxId, name],
  );
}

/** Forgets the secret of this name of several sandboxes. */
export async function deleteSecretsOf(
  sql: Sql,
  sandboxes: readonly { orgId: string; sandboxId: string }[],
  name: string,
): Promise<void> {
  await sql.query(
    `delete from sandbox_secrets d using unnest($1::uuid[], $2::uuid[]) as s (org_id, id)
     where d.org_id = s.org_id and d.sandbox_id = s.id and d.name = $3`,
    [sandboxes.map(({ orgId }) => orgId), sandboxes.map(({ sandboxId }) => sandboxId), name],
  );
}

/** Locks some secrets that are sealed under another key than this one, of whatever organization. */
export async function lockOutdated(tx: Sql, keyId: string, limit: number): Promise<SecretRow[]> {
  const { rows } = await tx.query<RawRow>(
    `select ${COLUMNS} from sandbox_secrets where key_id <> $1 limit $2 for update`,
    [keyId, limit],
  );
  return rows.map(toRow);
}

export async function replaceSealed(tx: Sql, { org_id, sandbox_id, name, sealed }: SecretRow): Promise<void> {
  await tx.query(
    `update sandbox_secrets set key_id = $4, sealed = $5 where org_id = $1 and sandbox_id = $2 and name = $3`,
    [org_id, sandbox_id, name, sealed.keyId, sealed.bytes],
  );
}

/** The key that this installation seals under; `proposed` when there is none yet. */
export async function agreeOnKey(sql: Sql, proposed: string): Promise<string> {
  const { rows } = await sql.query<{ secret_key_id: string }>(
    'update instance set secret_key_id = coalesce(secret_key_id, $1) returning secret_key_id',
    [proposed],
  );
  return rows[0]!.secret_key_id;
}

/** Every key that something is sealed under, or will be. */
export async function sealingKeys(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ key_id: string }>(
    `select secret_key_id as key_id from instance where secret_key_id is not null
     union select key_id from sandbox_secrets
     union select key_id from webhooks where key_id is not null
     union select unnest(old_key_ids) from webhooks`,
  );
  return rows.map(({ key_id }) => key_id);
}

export async function setKey(sql: Sql, keyId: string): Promise<void> {
  await sql.query('update instance set secret_key_id = $1', [keyId]);
}

/** Deletes every secret there is. Returns the organization of each. */
export async function deleteAllSecrets(sql: Sql): Promise<{ org_id: string }[]> {
  const { rows } = await sql.query<{ org_id: string }>('delete from sandbox_secrets returning org_id');
  return rows;
}
