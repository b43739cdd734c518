import type { Role } from '../access/roles.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface MemberRow {
  id: string;
  user_id: string;
  email: string;
  role: Role;
  /** The member sees only sandboxes with all of these. Empty: every sandbox. */
  labels: Record<string, string>;
  display_name: string | null;
  joined_at: Instant;
}

type Row = MemberRow & Record<string, unknown>;

const COLUMNS = 'id, user_id, email, role, labels, display_name, joined_at';
const M_COLUMNS = COLUMNS.replace(/\w+/g, 'm.$&');

export async function insertMember(
  sql: Sql,
  orgId: string,
  member: MemberRow,
  { personId, byGroups }: { personId: string | null; byGroups: boolean },
): Promise<void> {
  const columns = `org_id, person_id, by_groups, ${COLUMNS}`;
  await sql.query(`insert into org_members (${columns}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, [
    orgId,
    personId,
    byGroups,
    member.id,
    member.user_id,
    member.email,
    member.role,
    member.labels,
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

export async function getMember(sql: Sql, orgId: string, id: string): Promise<MemberRow | undefined> {
  const { rows } = await sql.query<Row>(`select ${COLUMNS} from org_members where org_id = $1 and id = $2`, [
    orgId,
    id,
  ]);
  return rows[0];
}

export interface LockedMember {
  member: MemberRow;
  /** The owners of the organization beside the member. */
  otherOwners: number;
}

export type MemberName = { email: string } | { id: string };

/** Locks a member. The owners are locked first, in one order, so that two changes never end the last owner. */
export async function lockMember(
  sql: Sql,
  orgId: string,
  name: MemberName,
): Promise<LockedMember | undefined> {
  const { rows: owners } = await sql.query<{ id: string }>(
    `select id from org_members where org_id = $1 and role = 'owner' order by id for update`,
    [orgId],
  );
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from org_members where org_id = $1 and (id = $2 or lower(email) = lower($3)) for update`,
    [orgId, 'id' in name ? name.id : null, 'email' in name ? name.email : null],
  );
  const [member] = rows;
  return member && { member, otherOwners: owners.filter(({ id }) => id !== member.id).length };
}

export async function setAccess(
  sql: Sql,
  orgId: string,
  id: string,
  { role, labels }: Pick<MemberRow, 'role' | 'labels'>,
): Promise<void> {
  await sql.query('update org_members set role = $3, labels = $4 where org_id = $1 and id = $2', [
    orgId,
    id,
    role,
    labels,
  ]);
}

/** Ends the sessions and the link of the member too. */
export async function deleteMember(sql: Sql, orgId: string, id: string): Promise<void> {
  await sql.query('delete from org_members where org_id = $1 and id = $2', [orgId, id]);
}

/** The members that are one account, with their organizations, by slug. */
export async function getMembersOfPerson(
  sql: Sql,
  personId: string,
): Promise<(MemberRow & { org_id: string; by_groups: boolean; org_name: string; org_slug: string })[]> {
  const { rows } = await sql.query<
    Row & { org_id: string; by_groups: boolean; org_name: string; org_slug: string }
  >(
    `select m.org_id, m.by_groups, o.name as org_name, o.slug as org_slug, ${M_COLUMNS}
     from org_members m join orgs o on o.id = m.org_id
     where m.person_id = $1 order by o.slug`,
    [personId],
  );
  return rows;
}

/** Gives an account the members with its verified address that no account has. */
export async function linkMembers(sql: Sql, personId: string, email: string): Promise<void> {
  await sql.query(
    `update org_members m set person_id = $1
     where lower(email) = lower($2) and person_id is null
       and not exists (select from org_members o where o.org_id = m.org_id and o.person_id = $1)`,
    [personId, email],
  );
}

/** Separates a member from its account. The next sign-in with the address links it. */
export async function clearPerson(sql: Sql, orgId: string, id: string): Promise<void> {
  await sql.query('update org_members set person_id = null where org_id = $1 and id = $2', [orgId, id]);
}

/** Replaces the link of the member. */
export async function putLink(
  sql: Sql,
  link: { org_id: string; member_id: string; hash: Buffer; created_at: Instant; expires_at: Instant },
): Promise<void> {
  await sql.query(
    `insert into member_links (org_id, member_id, hash, created_at, expires_at) values ($1, $2, $3, $4, $5)
     on conflict (org_id, member_id) do update
     set hash = excluded.hash, created_at = excluded.created_at, expires_at = excluded.expires_at`,
    [link.org_id, link.member_id, link.hash, link.created_at, link.expires_at],
  );
}

/** Uses a link up. Undefined if it is unknown, used or expired. No query is bound to an organization before it. */
export async function takeLink(
  sql: Sql,
  hash: Buffer,
  at: Instant,
): Promise<(MemberRow & { org_id: string }) | undefined> {
  const { rows } = await sql.query<Row & { org_id: string }>(
    `with taken as (delete from member_links where hash = $1 and expires_at > $2 returning org_id, member_id)
     select m.org_id, ${M_COLUMNS} from org_members m
     join taken t on t.org_id = m.org_id and t.member_id = m.id`,
    [hash, at],
  );
  return rows[0];
}

export async function deleteLinks(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from member_links where expires_at <= $1', [expired]);
}
