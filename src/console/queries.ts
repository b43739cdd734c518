import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Sealed } from '../secrets/keyring.js';

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

export interface NewMemberSession {
  org_id: string;
  hash: Buffer;
  id: string;
  member_id: string;
  created_at: Instant;
  expires_at: Instant;
  idle_at: Instant;
  /** Null: a link or a passkey opened it. */
  account: SessionAccount | null;
  passkey_id: string | null;
}

/** The session of the provider behind a session here. */
export interface SessionAccount {
  person_id: string;
  sid: string | null;
  /** The ID token. */
  sealed: Sealed | null;
}

export async function insertMemberSession(sql: Sql, session: NewMemberSession): Promise<void> {
  const { org_id, hash, id, member_id, created_at, expires_at, idle_at, account, passkey_id } = session;
  await sql.query(
    `insert into console_sessions (org_id, hash, id, member_id, created_at, expires_at, idle_at, person_id, sid,
       sealed_by, sealed, passkey_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      org_id,
      hash,
      id,
      member_id,
      created_at,
      expires_at,
      idle_at,
      account?.person_id ?? null,
      account?.sid ?? null,
      account?.sealed?.keyId ?? null,
      account?.sealed?.bytes ?? null,
      passkey_id,
    ],
  );
}

export interface EndedSession extends Omit<SessionAccount, 'person_id'> {
  id: string;
  person_id: string | null;
}

/** Deletes the session of a member. Undefined if it has ended before. */
export async function takeMemberSession(
  sql: Sql,
  orgId: string,
  hash: Buffer,
): Promise<EndedSession | undefined> {
  const { rows } = await sql.query<{
    id: string;
    person_id: string | null;
    sid: string | null;
    sealed_by: string | null;
    sealed: Buffer | null;
  }>(
    `delete from console_sessions where org_id = $1 and hash = $2 and member_id is not null
     returning id, person_id, sid, sealed_by, sealed`,
    [orgId, hash],
  );
  const [row] = rows;
  if (!row) return undefined;
  const { sealed_by: keyId, sealed: bytes, ...rest } = row;
  return { ...rest, sealed: keyId === null || bytes === null ? null : { keyId, bytes } };
}

/**
 * Ends the sessions that the provider names. Null for `sid`: every session of the account. A session without a `sid`
 * ends with any session of its account. Returns the ended ones.
 */
export async function deleteSessionsOfAccount(
  sql: Sql,
  issuer: string,
  { sid, subject }: { sid: string | null; subject: string | null },
): Promise<{ org_id: string; id: string; member_id: string }[]> {
  const { rows } = await sql.query<{ org_id: string; id: string; member_id: string }>(
    `delete from console_sessions s using people p
     where p.id = s.person_id and p.issuer = $1
       and ($2::text is null or s.sid = $2 or (s.sid is null and $3::text is not null))
       and ($3::text is null or p.subject = $3)
     returning s.org_id, s.id, s.member_id`,
    [issuer, sid, subject],
  );
  return rows;
}

/** Deletes all sessions of a member but the latest ones. Returns the ids of the deleted ones. */
export async function deleteOldestOfMember(
  sql: Sql,
  orgId: string,
  memberId: string,
  { keep }: { keep: number },
): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `delete from console_sessions
     where org_id = $1 and hash in (
       select hash from console_sessions where org_id = $1 and member_id = $2
       order by created_at desc, hash offset $3)
     returning id`,
    [orgId, memberId, keep],
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
  await sql.query('delete from console_sessions where expires_at <= $1 or idle_at <= $1', [expired]);
}
