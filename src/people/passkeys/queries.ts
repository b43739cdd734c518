import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { MemberRow } from '../../members/queries.js';

export interface PasskeyRow {
  id: string;
  name: string;
  credential_id: Buffer;
  transports: string[];
  created_at: Instant;
  used_at: Instant | null;
}

export interface NewPasskey extends Omit<PasskeyRow, 'used_at'> {
  public_key: Uint8Array;
  counter: number;
}

type Row = PasskeyRow & Record<string, unknown>;

const COLUMNS = 'id, name, credential_id, transports, created_at, used_at';

/** Oldest first. `session`: `is_current` is true for the passkey that opened it. */
export async function getPasskeys(
  sql: Sql,
  orgId: string,
  memberId: string,
  session?: Buffer,
): Promise<(PasskeyRow & { is_current: boolean })[]> {
  const { rows } = await sql.query<Row & { is_current: boolean }>(
    `select ${COLUMNS}, exists (
       select from console_sessions s where s.org_id = $1 and s.hash = $3 and s.passkey_id = p.id) as is_current
     from member_passkeys p where org_id = $1 and member_id = $2 order by created_at, id`,
    [orgId, memberId, session ?? null],
  );
  return rows;
}

/** Locks a member against changes, so that its passkeys can be counted. */
export async function lockPasskeys(sql: Sql, orgId: string, memberId: string): Promise<void> {
  await sql.query('select from org_members where org_id = $1 and id = $2 for update', [orgId, memberId]);
}

/** Whether an account of the provider has the member. */
export async function hasAccount(sql: Sql, orgId: string, memberId: string): Promise<boolean> {
  const { rowCount } = await sql.query(
    'select from org_members where org_id = $1 and id = $2 and person_id is not null',
    [orgId, memberId],
  );
  return rowCount === 1;
}

/** The unique key `member_passkeys_credential_id_key` refuses a credential that any member has. */
export async function insertPasskey(
  sql: Sql,
  orgId: string,
  memberId: string,
  passkey: NewPasskey,
): Promise<void> {
  await sql.query(
    `insert into member_passkeys
       (org_id, member_id, id, name, credential_id, transports, created_at, public_key, counter)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      orgId,
      memberId,
      passkey.id,
      passkey.name,
      passkey.credential_id,
      passkey.transports,
      passkey.created_at,
      Buffer.from(passkey.public_key),
      passkey.counter,
    ],
  );
}

/** Deletes one passkey of a member (null: each), with the sessions that it opened. */
export async function deletePasskeys(
  sql: Sql,
  orgId: string,
  memberId: string,
  id: string | null,
): Promise<{ id: string; name: string }[]> {
  const { rows } = await sql.query<{ id: string; name: string }>(
    `delete from member_passkeys
     where org_id = $1 and member_id = $2 and ($3::uuid is null or id = $3) returning id, name`,
    [orgId, memberId, id],
  );
  return rows;
}

export async function renamePasskey(sql: Sql, orgId: string, id: string, name: string): Promise<void> {
  await sql.query('update member_passkeys set name = $3 where org_id = $1 and id = $2', [orgId, id, name]);
}

/** The passkeys of every organization. */
export async function countPasskeys(sql: Sql): Promise<number> {
  const { rows } = await sql.query<{ count: number }>('select count(*)::int as count from member_passkeys');
  return rows[0]!.count;
}

export interface Signer {
  org_id: string;
  id: string;
  public_key: Buffer;
  counter: number;
}

/** The passkey of a member. No query is bound to an organization before this one. */
export async function getSigner(
  sql: Sql,
  { credentialId, memberId }: { credentialId: Buffer; memberId: string },
): Promise<Signer | undefined> {
  const { rows } = await sql.query<Signer & Record<string, unknown>>(
    `select org_id, id, public_key, counter::float8 as counter from member_passkeys
     where credential_id = $1 and member_id = $2`,
    [credentialId, memberId],
  );
  return rows[0];
}

/**
 * Records a sign-in and returns the member. Undefined: the passkey was used or removed meanwhile. `locally`: only for a
 * member without an account of the provider. Until the end of the transaction the passkey, and so the member, stays.
 */
export async function usePasskey(
  sql: Sql,
  { org_id, id, counter }: Signer,
  { next, at, locally }: { next: number; at: Instant; locally: boolean },
): Promise<(MemberRow & { org_id: string }) | undefined> {
  const { rows } = await sql.query<MemberRow & { org_id: string } & Record<string, unknown>>(
    `update member_passkeys p set counter = $4, used_at = $5
     from org_members m
     where p.org_id = $1 and p.id = $2 and p.counter = $3
       and m.org_id = p.org_id and m.id = p.member_id and (not $6 or m.person_id is null)
     returning m.org_id, m.id, m.user_id, m.email, m.role, m.labels, m.display_name, m.joined_at`,
    [org_id, id, counter, next, at, locally],
  );
  return rows[0];
}
