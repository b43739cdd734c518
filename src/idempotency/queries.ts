import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Keyed } from './keyed.js';

/**
 * Takes the key for this transaction; false when it is taken. While another transaction has it and is not done, this
 * waits for its end. One that was taken before `expired` is as good as free.
 */
export async function claimKey(
  sql: Sql,
  orgId: string,
  { key, fingerprints }: Keyed,
  at: Instant,
  expired: Instant,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `insert into idempotency_keys as k (org_id, key, fingerprint, created_at)
     values ($1, $2, $3, $4)
     on conflict (org_id, key) do update
       set fingerprint = excluded.fingerprint, created_at = excluded.created_at, answer = null, final = false
       where k.created_at <= $5`,
    [orgId, key, fingerprints[0], at, expired],
  );
  return rowCount === 1;
}

export interface Stored {
  fingerprint: Buffer;
  answer: unknown;
  final: boolean;
}

export async function getStored(sql: Sql, orgId: string, key: string): Promise<Stored | undefined> {
  const { rows } = await sql.query<Stored & Record<string, unknown>>(
    'select fingerprint, answer, final from idempotency_keys where org_id = $1 and key = $2',
    [orgId, key],
  );
  return rows[0];
}

/** False when there is a final answer already, or the key was given to another request. */
export async function storeAnswer(
  sql: Sql,
  orgId: string,
  { key, fingerprints }: Keyed,
  answer: unknown,
  final: boolean,
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `update idempotency_keys set answer = $4, final = $5
     where org_id = $1 and key = $2 and fingerprint = any ($3::bytea[]) and not final`,
    [orgId, key, fingerprints, JSON.stringify(answer), final],
  );
  return rowCount === 1;
}

/** Gives a key back whose request came to nothing. */
export async function releaseKey(sql: Sql, orgId: string, { key, fingerprints }: Keyed): Promise<void> {
  await sql.query(
    `delete from idempotency_keys
     where org_id = $1 and key = $2 and fingerprint = any ($3::bytea[]) and not final`,
    [orgId, key, fingerprints],
  );
}

/** Returns how many were deleted. */
export async function deleteExpired(sql: Sql, expired: Instant, limit: number): Promise<number> {
  const { rowCount } = await sql.query(
    `delete from idempotency_keys where (org_id, key) in (
       select org_id, key from idempotency_keys
       where created_at <= $1
       order by created_at
       limit $2
       for update skip locked)`,
    [expired, limit],
  );
  return rowCount ?? 0;
}
