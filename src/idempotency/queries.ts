import type { Sql } from '../db/pool.js';
import { write, type WriteTarget } from '../db/write-batch.js';
import { parseExactBelow, stringifyExact } from '../lib/exact-json.js';
import type { Instant } from '../lib/instant.js';
import type { Keyed } from './keyed.js';

/** The fields of answers whose integers may exceed 2^53 - 1. */
const EXACT_FIELDS = ['rlimits', 'capacity_bytes'];

export const KEY_CONSTRAINT = 'idempotency_keys_pkey';

/**
 * Violates KEY_CONSTRAINT if the key exists. Waits for a transaction that has inserted the same key and has not ended.
 * Returns the length of the stored answer.
 */
export async function insertAnswer(
  target: WriteTarget,
  orgId: string,
  { key, fingerprints }: Keyed,
  answer: unknown,
  { at, final }: { at: Instant; final: boolean },
): Promise<number> {
  const text = stringifyExact(answer);
  await write(
    target,
    (p) => `insert into idempotency_keys (org_id, key, fingerprint, answer, final, created_at)
     values (${p(orgId)}, ${p(key)}, ${p(fingerprints[0])}, ${p(text)}, ${p(final)}, ${p(at)})`,
  );
  return text.length;
}

/** The stored bytes of the answers of an organization, beyond the first ones of each. Reads no answer. */
export async function sumOfLongAnswers(sql: Sql, orgId: string, freeBytes: number): Promise<number> {
  const { rows } = await sql.query<{ bytes: number }>(
    `select coalesce(sum(pg_column_size(answer) - $2::int), 0)::float8 as bytes
     from idempotency_keys where org_id = $1 and pg_column_size(answer) > $2`,
    [orgId, freeBytes],
  );
  return rows[0]!.bytes;
}

export async function deleteKey(sql: Sql, orgId: string, key: string, expired: Instant): Promise<void> {
  await sql.query('delete from idempotency_keys where org_id = $1 and key = $2 and created_at <= $3', [
    orgId,
    key,
    expired,
  ]);
}

export interface Stored {
  fingerprint: Buffer;
  answer: unknown;
  final: boolean;
  created_at: Instant;
}

export async function getStored(sql: Sql, orgId: string, key: string): Promise<Stored | undefined> {
  const { rows } = await sql.query<Omit<Stored, 'answer'> & { answer: string | null }>(
    'select fingerprint, answer::text, final, created_at from idempotency_keys where org_id = $1 and key = $2',
    [orgId, key],
  );
  const stored = rows[0];
  return (
    stored && {
      ...stored,
      answer: stored.answer === null ? null : parseExactBelow(EXACT_FIELDS, stored.answer),
    }
  );
}

/** False if there is a final response already, or if another request has the key. */
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
    [orgId, key, fingerprints, stringifyExact(answer), final],
  );
  return rowCount === 1;
}

/** Claims a new or expired key, or that of an equal request whose claim was not renewed since `expiredClaim`. */
export async function claimFileKey(
  sql: Sql,
  orgId: string,
  { key, fingerprints }: Keyed,
  claim: string,
  { at, expired, expiredClaim }: { at: Instant; expired: Instant; expiredClaim: Instant },
): Promise<boolean> {
  const { rowCount } = await sql.query(
    `insert into idempotency_keys as k (org_id, key, fingerprint, claim, created_at)
     values ($1, $2, $3, $4, $5)
     on conflict (org_id, key) do update
       set fingerprint = excluded.fingerprint, created_at = excluded.created_at, claim = excluded.claim,
         answer = null, final = false
       where k.created_at <= $6
         or (k.claim is not null and not k.final and k.fingerprint = any ($8::bytea[]) and k.created_at <= $7)`,
    [orgId, key, fingerprints[0], claim, at, expired, expiredClaim, fingerprints],
  );
  return rowCount === 1;
}

export async function renewClaim(
  sql: Sql,
  orgId: string,
  key: string,
  claim: string,
  at: Instant,
): Promise<void> {
  await sql.query(
    'update idempotency_keys set created_at = $4 where org_id = $1 and key = $2 and claim = $3 and not final',
    [orgId, key, claim, at],
  );
}

/** Stores the response of a claim, unless another process has taken the key over. Returns its length. */
export async function answerClaim(
  sql: Sql,
  orgId: string,
  key: string,
  claim: string,
  answer: unknown,
): Promise<number> {
  const text = stringifyExact(answer);
  await sql.query(
    `update idempotency_keys set answer = $4, final = true
     where org_id = $1 and key = $2 and claim = $3 and not final`,
    [orgId, key, claim, text],
  );
  return text.length;
}

export async function releaseClaim(sql: Sql, orgId: string, key: string, claim: string): Promise<void> {
  await sql.query(
    'delete from idempotency_keys where org_id = $1 and key = $2 and claim = $3 and not final',
    [orgId, key, claim],
  );
}

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
