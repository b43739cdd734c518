import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { tokenKind } from '../lib/token.js';
import { CredentialCache } from './credential-cache.js';
import { hashOf } from './key-secret.js';
import type { Role } from './roles.js';

/** A session of a member, with the member as it is now. */
export interface MemberSessionRow {
  org_id: string;
  session_hash: Buffer;
  session_expires_at: Instant;
  /** The session ends then, unless it is used before. */
  idle_at: Instant;
  member_id: string;
  user_id: string;
  email: string;
  display_name: string | null;
  role: Role;
  labels: Record<string, string>;
  /** The account of the provider. Null: a link opened the session. */
  person_id: string | null;
}

/** Tokens of sessions of keys begin with `sks_`. */
export const MEMBER_TOKEN = tokenKind('skm_');

/** In the order of the hashes, also expired ones. No query is bound to an organization before this one. */
export async function findMemberSessions(
  sql: Sql,
  hashes: readonly Buffer[],
): Promise<(MemberSessionRow | undefined)[]> {
  const { rows } = await sql.query<MemberSessionRow & Record<string, unknown>>(
    `select s.org_id, s.hash as session_hash, s.expires_at as session_expires_at, s.idle_at,
       s.person_id,
       m.id as member_id, m.user_id, m.email, m.display_name, m.role, m.labels
     from console_sessions s
     join org_members m on m.org_id = s.org_id and m.id = s.member_id
     where s.hash = any ($1) and (s.person_id is null or s.person_id = m.person_id)`,
    [hashes],
  );
  return hashes.map((hash) => rows.find(({ session_hash }) => session_hash.equals(hash)));
}

/** Ends the sessions of a member that an account of the provider opened. */
export async function deleteAccountSessions(sql: Sql, orgId: string, memberId: string): Promise<void> {
  await sql.query(
    'delete from console_sessions where org_id = $1 and member_id = $2 and person_id is not null',
    [orgId, memberId],
  );
}

export function ifStillOpen(
  session: MemberSessionRow | undefined,
  at: Instant,
): MemberSessionRow | undefined {
  return session && session.session_expires_at > at && session.idle_at > at ? session : undefined;
}

export class MemberSessionCache extends CredentialCache<MemberSessionRow> {
  constructor(sql: Sql, changes: Changes) {
    super(
      {
        find: (tokens) => findMemberSessions(sql, tokens.map(hashOf)),
        isWellFormed: MEMBER_TOKEN.isWellFormed,
        channels: ['session'],
      },
      changes,
    );
  }
}
