import { timingSafeEqual } from 'node:crypto';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { findSecrets, type SecretRow } from './key-queries.js';
import { hashOf, prefixOf } from './key-secret.js';

/** The keys that these secrets are of, in whatever state, in the same order; undefined for what is none. */
export async function findKeys(sql: Sql, secrets: readonly string[]): Promise<(SecretRow | undefined)[]> {
  const rows = await findSecrets(sql, secrets.map(prefixOf));
  return secrets.map((secret) => {
    const [prefix, hash] = [prefixOf(secret), hashOf(secret)];
    // The index finds by the public prefix only; the secret part is compared here, in constant time.
    return rows.find((row) => row.secret_prefix === prefix && timingSafeEqual(row.hash, hash));
  });
}

/** Why a key that is known is not taken; undefined when it is. */
export function deadBecause(
  { revoked_at, expires_at, until }: SecretRow,
  at: Instant,
): 'revoked' | 'expired' | undefined {
  if (revoked_at !== null) return 'revoked';
  if (expires_at !== null && expires_at <= at) return 'expired';
  if (until !== null && until <= at) return 'revoked';
  return undefined;
}
