import { K_COLUMNS, MEMBER_OF_K, type SecretRow } from '../../access/key-queries.js';
import type { TokenPlace } from '../../access/organization-keys.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export interface Place {
  org_id: string;
  /** The member of the organization that is the person of the token. Null: the person is none. */
  member: { id: string; user_id: string; email: string; display_name: string | null } | null;
}

/**
 * The organization of this slug, and the person of a token in it. One query for every case, so that its time does not
 * tell whether the organization exists. No query is bound to an organization before this one.
 */
export async function findPlace(
  sql: Sql,
  { org_id, member_id }: Pick<SecretRow, 'org_id' | 'member_id'>,
  slug: string,
): Promise<Place | undefined> {
  const { rows } = await sql.query<Place & Record<string, unknown>>(
    `select o.id as org_id, (
       select json_build_object('id', m.id, 'user_id', m.user_id, 'email', m.email, 'display_name', m.display_name)
       from org_members h
       join org_members m on m.org_id = o.id and m.person_id = h.person_id
       where h.org_id = $1 and h.id = $2) as member
     from orgs o where o.slug = $3`,
    [org_id, member_id, slug],
  );
  return rows[0];
}

const MOST_SLUGS = 20;

/**
 * The slugs of the organizations that a credential opens, at most 20: its own one, and those of the person of a token.
 * An organization that revoked the token is left out. No query is bound to an organization before this one.
 */
export async function findSlugs(sql: Sql, { org_id, id, member_id }: TokenPlace): Promise<string[]> {
  const { rows } = await sql.query<{ slug: string }>(
    `select o.slug from orgs o where o.id = $1
     union
     select o.slug
     from org_members h
     join org_members m on m.person_id = h.person_id
     join orgs o on o.id = m.org_id
     where h.org_id = $1 and h.id = $2 and not exists (
       select from api_keys k where k.of_token_id = $3 and k.member_id = m.id and k.revoked_at is not null)
     order by slug limit ${MOST_SLUGS}`,
    [org_id, member_id, id],
  );
  return rows.map(({ slug }) => slug);
}

/** The row of a token for a member of another organization, also a revoked one. */
export async function findTokenOf(
  sql: Sql,
  tokenId: string,
  memberId: string,
): Promise<SecretRow | undefined> {
  const { rows } = await sql.query<SecretRow & Record<string, unknown>>(
    `select ${K_COLUMNS}, k.prefix as secret_prefix, k.hash, null::timestamptz as until, ${MEMBER_OF_K}
     from api_keys k where k.of_token_id = $1 and k.member_id = $2`,
    [tokenId, memberId],
  );
  return rows[0];
}

/** Whether a token is valid. It stays so until the transaction ends. */
export async function isTokenValid(
  sql: Sql,
  { org_id, id }: Pick<SecretRow, 'org_id' | 'id'>,
  at: Instant,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    'select from api_keys where org_id = $1 and id = $2 and revoked_at is null and expires_at > $3 for share',
    [org_id, id, at],
  );
  return rowCount === 1;
}
