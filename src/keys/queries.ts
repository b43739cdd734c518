import type { Access } from '../access/access.js';
import { KEY_COLUMNS, K_COLUMNS, type KeyName, type KeyRow } from '../access/key-queries.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

type Row = KeyRow & Record<string, unknown>;

/** `replaced_until`: the last end of a replaced secret. */
export type ShownKeyRow = KeyRow & { replaced_until: Instant | null };
const SHOWN_COLUMNS = `${K_COLUMNS}, (select max(until) from api_key_replaced_secrets r
  where r.org_id = k.org_id and r.key_id = k.id) as replaced_until`;

export interface NewKeyRow {
  org_id: string;
  id: string;
  name: string;
  prefix: string;
  hash: Buffer;
  access: Access;
  created_at: Instant;
  created_by: EventActor;
  member_id: string | null;
  of_org_id: string | null;
  of_token_id: string | null;
}

export async function insertKey(sql: Sql, key: NewKeyRow): Promise<KeyRow> {
  const { scopes, labels, cidrs, expiresAt } = key.access;
  const { rows } = await sql.query<Row>(
    `insert into api_keys (org_id, id, name, prefix, hash, scopes, labels, cidrs, expires_at, created_at, created_by,
       member_id, of_org_id, of_token_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
     returning ${KEY_COLUMNS}`,
    [
      key.org_id,
      key.id,
      key.name,
      key.prefix,
      key.hash,
      scopes,
      JSON.stringify(labels),
      cidrs,
      expiresAt,
      key.created_at,
      JSON.stringify(key.created_by),
      key.member_id,
      key.of_org_id,
      key.of_token_id,
    ],
  );
  return rows[0]!;
}

/** Undefined for a personal token, too. */
export async function getKey(sql: Sql, orgId: string, id: string): Promise<ShownKeyRow | undefined> {
  const { rows } = await sql.query<ShownKeyRow & Row>(
    `select ${SHOWN_COLUMNS} from api_keys k where k.org_id = $1 and k.id = $2 and k.member_id is null`,
    [orgId, id],
  );
  return rows[0];
}

/** Keys of an organization without personal tokens, oldest first, `limit` at most, after `after` (created_at, id). */
export async function pageKeys(
  sql: Sql,
  orgId: string,
  after: readonly [Instant, string] | undefined,
  limit: number,
): Promise<ShownKeyRow[]> {
  const { rows } = await sql.query<ShownKeyRow & Row>(
    `select ${SHOWN_COLUMNS} from api_keys k
     where k.org_id = $1 and k.member_id is null and ($2::timestamptz is null or (k.created_at, k.id) > ($2, $3::uuid))
     order by k.created_at, k.id
     limit $4`,
    [orgId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

/** All keys of an organization, or of all when none is named, with personal tokens; oldest first. For the operator. */
export async function listKeys(
  sql: Sql,
  orgId: string | undefined,
): Promise<(ShownKeyRow & { org_slug: string })[]> {
  const { rows } = await sql.query<ShownKeyRow & Row & { org_slug: string }>(
    `select ${SHOWN_COLUMNS}, o.slug as org_slug
     from api_keys k
     join orgs o on o.id = k.org_id
     where $1::uuid is null or k.org_id = $1
     order by k.created_at, k.id`,
    [orgId ?? null],
  );
  return rows;
}

/** The organization of a key. For the operator, who names a key by its id alone. */
export async function findOrgOfKey(sql: Sql, id: string): Promise<string | undefined> {
  const { rows } = await sql.query<{ org_id: string }>('select org_id from api_keys where id = $1', [id]);
  return rows[0]?.org_id;
}

/**
 * Locks the keys until the transaction ends, in the order of their ids, so that no two transactions wait for each
 * other. `share`: other transactions may share the lock, and none may change the keys.
 */
export async function lockKeys(
  sql: Sql,
  orgId: string,
  ids: readonly string[],
  strength: 'share' | 'update',
): Promise<void> {
  await sql.query(
    `select from api_keys where org_id = $1 and id = any ($2::uuid[]) order by id for ${strength}`,
    [orgId, ids],
  );
}

export async function lockKey(sql: Sql, orgId: string, id: string): Promise<KeyRow | undefined> {
  const { rows } = await sql.query<Row>(
    `select ${KEY_COLUMNS} from api_keys where org_id = $1 and id = $2 for update`,
    [orgId, id],
  );
  return rows[0];
}

/** From its commit on, no secret of the key works. */
export async function setRevoked(sql: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  // The event of this revocation is written with it: see claimEndedElsewhere.
  await sql.query(
    'update api_keys set revoked_at = $3, expiry_recorded = true where org_id = $1 and id = $2',
    [orgId, id, at],
  );
  await deleteReplacedSecrets(sql, orgId, id);
}

/** Stores the present secret of a key among the replaced ones, which work until `until`. */
export async function keepReplacedSecret(sql: Sql, orgId: string, id: string, until: Instant): Promise<void> {
  await sql.query(
    `insert into api_key_replaced_secrets (org_id, key_id, prefix, hash, until)
     select org_id, id, prefix, hash, $3 from api_keys where org_id = $1 and id = $2`,
    [orgId, id, until],
  );
}

/** Secrets that were replaced earlier end at `until` at the latest. */
export async function shortenReplacedSecrets(
  sql: Sql,
  orgId: string,
  id: string,
  until: Instant,
): Promise<void> {
  await sql.query(
    'update api_key_replaced_secrets set until = $3 where org_id = $1 and key_id = $2 and until > $3',
    [orgId, id, until],
  );
}

export async function deleteReplacedSecrets(sql: Sql, orgId: string, id: string): Promise<void> {
  await sql.query('delete from api_key_replaced_secrets where org_id = $1 and key_id = $2', [orgId, id]);
}

export async function replaceSecret(
  sql: Sql,
  orgId: string,
  id: string,
  { prefix, hash, at }: { prefix: string; hash: Buffer; at: Instant },
): Promise<KeyRow> {
  const { rows } = await sql.query<Row>(
    `update api_keys set prefix = $3, hash = $4, rotated_at = $5
     where org_id = $1 and id = $2
     returning ${KEY_COLUMNS}`,
    [orgId, id, prefix, hash, at],
  );
  return rows[0]!;
}

/** Marks the expiry of keys as recorded, of `limit` keys at most. Returns these. */
export async function claimExpired(
  sql: Sql,
  at: Instant,
  limit: number,
): Promise<(KeyName & { expires_at: Instant })[]> {
  const { rows } = await sql.query<KeyName & { expires_at: Instant } & Record<string, unknown>>(
    `with due as materialized (
       select org_id, id from api_keys
       where expires_at <= $1 and not expiry_recorded and revoked_at is null
       order by expires_at
       limit $2
       for update skip locked
     )
     update api_keys k set expiry_recorded = true
     from due
     where k.org_id = due.org_id and k.id = due.id
     returning k.org_id, k.id, k.name, k.prefix, k.expires_at`,
    [at, limit],
  );
  return rows;
}

/**
 * Marks the end of rows as recorded that ended with the token behind them, or with their member; of `limit` at most.
 * Returns these.
 */
export async function claimEndedElsewhere(sql: Sql, limit: number): Promise<KeyRow[]> {
  const { rows } = await sql.query<Row>(
    `with due as materialized (
       select org_id, id from api_keys
       where of_token_id is not null and revoked_at is not null and not expiry_recorded
       order by revoked_at
       limit $1
       for update skip locked
     )
     update api_keys k set expiry_recorded = true
     from due
     where k.org_id = due.org_id and k.id = due.id
     returning ${K_COLUMNS}`,
    [limit],
  );
  return rows;
}

/** Deletes the replaced secrets that have ended. */
export async function deleteEndedSecrets(sql: Sql, at: Instant): Promise<void> {
  await sql.query('delete from api_key_replaced_secrets where until <= $1', [at]);
}
