import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

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

/** Writes when keys were last used, where that is a minute or more after what is written. Returns those used first. */
export async function setUsed(sql: Sql, uses: readonly KeyUse[]): Promise<(KeyName & { at: Instant })[]> {
  const { rows } = await sql.query<KeyName & { at: Instant; first: boolean } & Record<string, unknown>>(
    `with used as (
       select org_id, id, at from unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) as u (org_id, id, at)
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

/** False when it was written less than an hour ago that the key is refused often. */
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

/** Marks keys whose time is over as known to be. `limit` at most; returns them. */
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

/** Deletes replaced secrets that do not work any more. */
export async function deleteEndedSecrets(sql: Sql, at: Instant): Promise<void> {
  await sql.query('delete from api_key_replaced_secrets where until <= $1', [at]);
}
