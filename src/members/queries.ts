import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { OrgRole } from '../orgs/schema.js';

export interface MemberRow {
  id: string;
  user_id: string;
  email: string;
  role: OrgRole;
  display_name: string | null;
  joined_at: Instant;
}

type Row = MemberRow & Record<string, unknown>;

const COLUMNS = 'id, user_id, email, role, display_name, joined_at';

export async function insertMember(sql: Sql, orgId: string, member: MemberRow): Promise<void> {
  await sql.query(`insert into org_members (org_id, ${COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7)`, [
    orgId,
    member.id,
    member.user_id,
    member.email,
    member.role,
    member.display_name,
    member.joined_at,
  ]);
}

/** Oldest first, `limit` at most (null: all), after `after` (joined_at, id). */
export async function getMembers(
  sql: Sql,
  orgId: string,
  after: readonly [Instant, string] | undefined,
  limit: number | null,
): Promise<MemberRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from org_members
     where org_id = $1 and ($2::timestamptz is null or (joined_at, id) > ($2, $3::uuid))
     order by joined_at, id
     limit $4`,
    [orgId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

/** Returns who was deleted, if there was one of this address. */
export async function deleteMember(sql: Sql, orgId: string, email: string): Promise<MemberRow | undefined> {
  const { rows } = await sql.query<Row>(
    `delete from org_members where org_id = $1 and lower(email) = lower($2) returning ${COLUMNS}`,
    [orgId, email],
  );
  return rows[0];
}
