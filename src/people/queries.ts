import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface Person {
  id: string;
  last_org_id: string | null;
}

/** The account of the provider. It is created at its first sign-in. Two first sign-ins at once make one. */
export async function putPerson(
  sql: Sql,
  person: { id: string; issuer: string; subject: string; at: Instant },
): Promise<Person> {
  const { rows } = await sql.query<Person & Record<string, unknown>>(
    `insert into people (id, issuer, subject, created_at, signed_in_at) values ($1, $2, $3, $4, $4)
     on conflict (issuer, subject) do update set signed_in_at = excluded.signed_in_at
     returning id, last_org_id`,
    [person.id, person.issuer, person.subject, person.at],
  );
  return rows[0]!;
}

/** Forgets an account that is no member. */
export async function deleteStranger(sql: Sql, id: string): Promise<void> {
  await sql.query(
    `delete from people p
     where id = $1
       and not exists (select from org_members m where m.person_id = p.id)
       and not exists (select from console_sessions s where s.person_id = p.id)`,
    [id],
  );
}

export async function setLastOrg(sql: Sql, id: string, orgId: string): Promise<void> {
  await sql.query('update people set last_org_id = $2 where id = $1', [id, orgId]);
}

/** The ids of the organizations with these slugs. */
export async function findOrgs(sql: Sql, slugs: readonly string[]): Promise<{ id: string; slug: string }[]> {
  const { rows } = await sql.query<{ id: string; slug: string }>(
    'select id, slug from orgs where slug = any ($1)',
    [slugs],
  );
  return rows;
}

/** False: a logout token of this name was used before. */
export async function noteLogoutToken(sql: Sql, hash: Buffer, expiresAt: Instant): Promise<boolean> {
  const { rowCount } = await sql.query(
    'insert into logout_tokens (hash, expires_at) values ($1, $2) on conflict do nothing',
    [hash, expiresAt],
  );
  return rowCount === 1;
}

export async function deleteLogoutTokens(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from logout_tokens where expires_at <= $1', [expired]);
}
