import { timingSafeEqual } from 'node:crypto';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { findSecrets, type SecretRow } from './key-queries.js';
import { hashOf, prefixOf } from './key-secret.js';

/** The keys of the secrets, in their order, also expired and revoked ones. Undefined for an unknown secret. */
export async function findKeys(sql: Sql, secrets: readonly string[]): Promise<(SecretRow | undefined)[]> {
  const rows = await findSecrets(sql, secrets.map(prefixOf));
  return secrets.map((secret) => {
    const [prefix, hash] = [prefixOf(secret), hashOf(secret)];
    // The index contains only the public prefix. The hash is compared here, in constant time.
    return rows.find((row) => row.secret_prefix === prefix && timingSafeEqual(row.hash, hash));
  });
}

/** Undefined if the key is accepted. */
export function refusalReasonOf(
  { revoked_at, expires_at, until, member_id, member }: SecretRow,
  at: Instant,
): 'revoked' | 'expired' | undefined {
  if (revoked_at !== null || (member_id !== null && member === null)) return 'revoked';
  if (expires_at !== null && expires_at <= at) return 'expired';
  if (until !== null && until <= at) return 'revoked';
  return undefined;
}
