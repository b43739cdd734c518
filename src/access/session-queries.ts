import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { K_COLUMNS, MEMBER_OF_K, type SecretRow } from './key-queries.js';

/** A session of the console, with its key and the secret of the sign-in. */
export type SessionRow = SecretRow & { session_hash: Buffer; session_expires_at: Instant };

/**
 * The sessions, in the order of the hashes of their tokens, also expired ones. No query is bound to an organization
 * before this one.
 */
export async function findSessions(sql: Sql, hashes: readonly Buffer[]): Promise<(SessionRow | undefined)[]> {
  const { rows } = await sql.query<SessionRow & Record<string, unknown>>(
    `select s.hash as session_hash, s.expires_at as session_expires_at,
       ${K_COLUMNS}, k.prefix as secret_prefix, k.hash, null::timestamptz as until, ${MEMBER_OF_K}
     from console_sessions s
     join api_keys k on k.org_id = s.org_id and k.id = s.key_id and k.prefix = s.secret_prefix
     where s.hash = any ($1)
     union all
     select s.hash, s.expires_at, ${K_COLUMNS}, r.prefix, r.hash, r.until, null::json
     from console_sessions s
     join api_key_replaced_secrets r on r.org_id = s.org_id and r.key_id = s.key_id and r.prefix = s.secret_prefix
     join api_keys k on k.org_id = s.org_id and k.id = s.key_id
     where s.hash = any ($1)`,
    [hashes],
  );
  return hashes.map((hash) => rows.find(({ session_hash }) => session_hash.equals(hash)));
}

export function ifOpen(session: SessionRow | undefined, at: Instant): SessionRow | undefined {
  return session && session.session_expires_at > at ? session : undefined;
}
