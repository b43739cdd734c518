import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Access } from './access.js';
import type { Role } from './roles.js';
import type { Scope } from './scopes.js';

export interface KeyRow {
  org_id: string;
  id: string;
  name: string;
  /** The prefix of the newest secret. */
  prefix: string;
  scopes: Scope[];
  labels: Record<string, string>;
  cidrs: string[];
  expires_at: Instant | null;
  created_at: Instant;
  created_by: EventActor | null;
  last_used_at: Instant | null;
  rotated_at: Instant | null;
  revoked_at: Instant | null;
  /** The member whose personal token it is. Null: a key of the organization. */
  member_id: string | null;
}

type Row = KeyRow & Record<string, unknown>;

export const KEY_COLUMNS = `org_id, id, name, prefix, scopes, labels, cidrs, expires_at, created_at, created_by, last_used_at, rotated_at,
  revoked_at, member_id`;
export const K_COLUMNS = KEY_COLUMNS.replace(/\w+/g, 'k.$&');

export function accessOf({
  scopes,
  labels,
  cidrs,
  expires_at,
  until = null,
}: KeyRow & { until?: Instant | null }): Access {
  return { scopes, labels, cidrs, expiresAt: expires_at, replaced: until !== null };
}

/** The member of a personal token, as it is now. */
export interface TokenMember {
  user_id: string;
  email: string;
  display_name: string | null;
  role: Role;
  labels: Record<string, string>;
}

/** A key and one of its secrets. `until`: when a replaced secret stops working. */
export interface SecretRow extends KeyRow {
  secret_prefix: string;
  hash: Buffer;
  until: Instant | null;
  /** Null for a key of the organization, and when the member is gone. */
  member: TokenMember | null;
}

/** The member of `k`, for the select list. */
export const MEMBER_OF_K = `(select json_build_object('user_id', m.user_id, 'email', m.email, 'display_name', m.display_name,
    'role', m.role, 'labels', m.labels)
  from org_members m where m.org_id = k.org_id and m.id = k.member_id) as member`;

/** Finds secrets by prefix, also of expired and revoked keys. No query is bound to an organization before this one. */
export async function findSecrets(sql: Sql, prefixes: readonly string[]): Promise<SecretRow[]> {
  const { rows } = await sql.query<SecretRow & Row>(
    `select ${K_COLUMNS}, k.prefix as secret_prefix, k.hash, null::timestamptz as until, ${MEMBER_OF_K}
     from api_keys k
     where k.prefix = any ($1)
     union all
     select ${K_COLUMNS}, r.prefix, r.hash, r.until, null::json from api_key_replaced_secrets r
     join api_keys k on k.org_id = r.org_id and k.id = r.key_id
     where r.prefix = any ($1)`,
    [prefixes],
  );
  return rows;
}

export interface KeyUse {
  org_id: string;
  id: string;
  at: Instant;
}

export interface KeyName {
  org_id: string;
  id: string;
  name: string;
  prefix: string;
}

/**
 * Updates the last use of keys, unless the stored one is less than a minute older. The use of a personal token in
 * another organization is also one of the token itself. Returns keys used for the first time.
 */
export async function setUsed(sql: Sql, uses: readonly KeyUse[]): Promise<(KeyName & { at: Instant })[]> {
  const { rows } = await sql.query<KeyName & { at: Instant; first: boolean } & Record<string, unknown>>(
    `with named as (
       select org_id, id, at from unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) as u (org_id, id, at)
     ), used as (
       select org_id, id, max(at) as at from (
         select org_id, id, at from named
         union all
         select k.of_org_id, k.of_token_id, n.at
         from named n join api_keys k on k.org_id = n.org_id and k.id = n.id
         where k.of_token_id is not null) as u
       group by org_id, id
     ), before as (
       select k.org_id, k.id, k.last_used_at is null as first, u.at
       from api_keys k
       join used u on u.org_id = k.org_id and u.id = k.id
       where k.last_used_at is null or k.last_used_at <= u.at - interval '1 minute'
       order by k.org_id, k.id
       for update of k
     )
     update api_keys k set last_used_at = b.at
     from before b
     where k.org_id = b.org_id and k.id = b.id
     returning k.org_id, k.id, k.name, k.prefix, b.at, b.first`,
    [uses.map((use) => use.org_id), uses.map(({ id }) => id), uses.map(({ at }) => at)],
  );
  return rows.filter(({ first }) => first);
}

/** Undefined if frequent refusals of the key were recorded less than an hour ago. */
export async function setRefusalsRecorded(
  sql: Sql,
  orgId: string,
  id: string,
  at: Instant,
): Promise<KeyName | undefined> {
  const { rows } = await sql.query<KeyName & Record<string, unknown>>(
    `update api_keys set refusals_recorded_at = $3
     where org_id = $1 and id = $2
       and (refusals_recorded_at is null or refusals_recorded_at <= $3::timestamptz - interval '1 hour')
     returning org_id, id, name, prefix`,
    [orgId, id, at],
  );
  return rows[0];
}
