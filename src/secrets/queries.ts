import type { Sql } from '../db/pool.js';
import { write, type WriteTarget } from '../db/write-batch.js';
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

export async function insertSecrets(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  secrets: readonly Pick<SecretRow, 'name' | 'sealed'>[],
): Promise<void> {
  if (secrets.length === 0) return;
  await write(
    target,
    (p) => `insert into sandbox_secrets (${COLUMNS})
     select ${p(orgId)}, ${p(sandboxId)}, s.*
     from unnest(
       ${p(secrets.map(({ name }) => name))}::text[],
       ${p(secrets.map(({ sealed }) => sealed.keyId))}::text[],
       ${p(secrets.map(({ sealed }) => sealed.bytes))}::bytea[]
     ) as s (name, key_id, sealed)`,
  );
}

export async function getSecrets(sql: Sql, orgId: string, sandboxId: string): Promise<SecretRow[]> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from sandbox_secrets where org_id = $1 and sandbox_id = $2`,
    [orgId, sandboxId],
  );
  return rows.map(toRow);
}

/** `name`: null for all secrets of the sandbox. */
export async function deleteSecrets(
  target: WriteTarget,
  orgId: string,
  sandboxId: string,
  name: string | null,
): Promise<void> {
  await write(target, (p) => {
    const named = name === null ? '' : `and name = ${p(name)}`;
    return `delete from sandbox_secrets where org_id = ${p(orgId)} and sandbox_id = ${p(sandboxId)} ${named}`;
  });
}

export async function deleteSecretsOf(
  target: WriteTarget,
  sandboxes: readonly { orgId: string; sandboxId: string }[],
  name: string,
): Promise<void> {
  const [orgIds, ids] = [sandboxes.map(({ orgId }) => orgId), sandboxes.map(({ sandboxId }) => sandboxId)];
  await write(
    target,
    (
      p,
    ) => `delete from sandbox_secrets d using unnest(${p(orgIds)}::uuid[], ${p(ids)}::uuid[]) as s (org_id, id)
     where d.org_id = s.org_id and d.sandbox_id = s.id and d.name = ${p(name)}`,
  );
}

/** Locks up to `limit` secrets, of any organization, that are not sealed under this key. */
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

/** The ids of all keys that some stored secret needs, and of the current key. */
export async function sealingKeys(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ key_id: string }>(
    `select secret_key_id as key_id from instance where secret_key_id is not null
     union select authority_key_id from instance where authority_key_id is not null
     union select key_id from sandbox_secrets
     union select key_id from registry_credentials where key_id is not null
     union select key_id from webhooks where key_id is not null
     union select unnest(old_key_ids) from webhooks`,
  );
  return rows.map(({ key_id }) => key_id);
}

export async function deleteAllSecrets(sql: Sql): Promise<{ org_id: string }[]> {
  const { rows } = await sql.query<{ org_id: string }>('delete from sandbox_secrets returning org_id');
  return rows;
}
