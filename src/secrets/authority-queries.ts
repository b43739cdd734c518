import type { Sql } from '../db/pool.js';
import type { Sealed } from './keyring.js';

/** The network authority of the installation, in the one row of `instance`. */
export interface AuthorityRow {
  /** PEM. */
  certificate: string;
  sealed: Sealed;
}

interface RawRow {
  [column: string]: unknown;
  certificate: string;
  key_id: string;
  sealed: Buffer;
}

const SELECT = `select authority_certificate as certificate, authority_key_id as key_id, authority_sealed as sealed
  from instance where authority_certificate is not null`;

function toRow(row: RawRow | undefined): AuthorityRow | undefined {
  return row && { certificate: row.certificate, sealed: { keyId: row.key_id, bytes: row.sealed } };
}

export async function readAuthority(sql: Sql): Promise<AuthorityRow | undefined> {
  const { rows } = await sql.query<RawRow>(SELECT);
  return toRow(rows[0]);
}

export async function lockAuthority(tx: Sql): Promise<AuthorityRow | undefined> {
  const { rows } = await tx.query<RawRow>(`${SELECT} for update`);
  return toRow(rows[0]);
}

/** Changes nothing when there is one. */
export async function insertAuthority(sql: Sql, { certificate, sealed }: AuthorityRow): Promise<void> {
  await sql.query(
    `update instance set authority_certificate = $1, authority_key_id = $2, authority_sealed = $3
     where authority_certificate is null`,
    [certificate, sealed.keyId, sealed.bytes],
  );
}

export async function replaceAuthority(sql: Sql, { certificate, sealed }: AuthorityRow): Promise<void> {
  await sql.query(
    'update instance set authority_certificate = $1, authority_key_id = $2, authority_sealed = $3',
    [certificate, sealed.keyId, sealed.bytes],
  );
}

/** Returns whether there was one. */
export async function clearAuthority(sql: Sql): Promise<boolean> {
  const { rowCount } = await sql.query(
    `update instance set authority_certificate = null, authority_key_id = null, authority_sealed = null
     where authority_certificate is not null`,
  );
  return (rowCount ?? 0) > 0;
}
