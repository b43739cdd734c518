import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { Sealed } from '../../secrets/keyring.js';

export interface TicketRow {
  org_id: string;
  hash: Buffer;
  sandbox_id: string;
  /** Null for the ticket of a member's session. */
  key_id: string | null;
  secret_prefix: string | null;
  session_hash: Buffer | null;
  sealed: Sealed;
  expires_at: Instant;
}

export async function insertTicket(sql: Sql, ticket: TicketRow): Promise<void> {
  const { org_id, hash, sandbox_id, key_id, secret_prefix, session_hash, sealed, expires_at } = ticket;
  await sql.query(
    `insert into terminal_tickets (org_id, hash, sandbox_id, key_id, secret_prefix, session_hash, sealed_by, sealed, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [org_id, hash, sandbox_id, key_id, secret_prefix, session_hash, sealed.keyId, sealed.bytes, expires_at],
  );
}

/** Uses a ticket up. Undefined if it is unknown, used, expired or for another sandbox. */
export async function takeTicket(
  sql: Sql,
  orgId: string,
  { hash, sandboxId, at }: { hash: Buffer; sandboxId: string; at: Instant },
): Promise<Sealed | undefined> {
  const { rows } = await sql.query<{ keyId: string; bytes: Buffer }>(
    `delete from terminal_tickets
     where org_id = $1 and hash = $2 and sandbox_id = $3 and expires_at > $4
     returning sealed_by as "keyId", sealed as bytes`,
    [orgId, hash, sandboxId, at],
  );
  return rows[0];
}

export async function deleteTickets(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from terminal_tickets where expires_at <= $1', [expired]);
}
