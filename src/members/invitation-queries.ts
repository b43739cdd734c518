import type { Role } from '../access/roles.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface InvitationRow {
  id: string;
  email: string;
  role: Role;
  labels: Record<string, string>;
  created_at: Instant;
  created_by: EventActor;
  expires_at: Instant;
}

type Row = InvitationRow & Record<string, unknown>;

const COLUMNS = 'id, email, role, labels, created_at, created_by, expires_at';

export async function countInvitations(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*)::int as count from member_invitations where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}

/** Replaces the invitation of the address. */
export async function putInvitation(
  sql: Sql,
  orgId: string,
  invitation: InvitationRow,
  hash: Buffer,
): Promise<void> {
  const { id, email, role, labels, created_at, created_by, expires_at } = invitation;
  await sql.query(
    `insert into member_invitations (org_id, hash, ${COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
     on conflict (org_id, lower(email)) do update
     set hash = excluded.hash, id = excluded.id, email = excluded.email, role = excluded.role,
       labels = excluded.labels, created_at = excluded.created_at, created_by = excluded.created_by,
       expires_at = excluded.expires_at`,
    [orgId, hash, id, email, role, labels, created_at, created_by, expires_at],
  );
}

export async function lockInvitation(
  sql: Sql,
  orgId: string,
  email: string,
): Promise<InvitationRow | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from member_invitations where org_id = $1 and lower(email) = lower($2) for update`,
    [orgId, email],
  );
  return rows[0];
}

/** Oldest first, `limit` at most (null: all), after `after` (created_at, id). */
export async function getInvitations(
  sql: Sql,
  orgId: string,
  after: readonly [Instant, string] | undefined,
  limit: number | null,
): Promise<InvitationRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from member_invitations
     where org_id = $1 and ($2::timestamptz is null or (created_at, id) > ($2, $3::uuid))
     order by created_at, id
     limit $4`,
    [orgId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

export type InvitationName = { id: string } | { email: string };

export async function deleteInvitation(
  sql: Sql,
  orgId: string,
  name: InvitationName,
): Promise<InvitationRow | undefined> {
  const { rows } = await sql.query<Row>(
    `delete from member_invitations
     where org_id = $1 and (id = $2 or lower(email) = lower($3)) returning ${COLUMNS}`,
    [orgId, 'id' in name ? name.id : null, 'email' in name ? name.email : null],
  );
  return rows[0];
}

/**
 * Uses an invitation up. Undefined if it is unknown, used, revoked or expired, or if it is for another address than
 * `email`; null: the link alone decides. No query is bound to an organization before this one.
 */
export async function takeInvitation(
  sql: Sql,
  hash: Buffer,
  at: Instant,
  email: string | null,
): Promise<(InvitationRow & { org_id: string }) | undefined> {
  const { rows } = await sql.query<Row & { org_id: string }>(
    `delete from member_invitations
     where hash = $1 and expires_at > $2 and ($3::text is null or lower(email) = lower($3))
     returning org_id, ${COLUMNS}`,
    [hash, at, email],
  );
  return rows[0];
}

export async function deleteInvitations(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from member_invitations where expires_at <= $1', [expired]);
}
