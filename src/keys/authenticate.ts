import { timingSafeEqual } from 'node:crypto';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { findSecrets, type SecretRow } from './queries.js';
import { hashOf, isWellFormedKey, prefixOf } from './secret.js';

/** The key that a secret is of, in whatever state; undefined for every kind of text that is no secret alike. */
export async function findKey(sql: Sql, secret: string): Promise<SecretRow | undefined> {
  if (!isWellFormedKey(secret)) return undefined;
  const hash = hashOf(secret);
  // The index finds by the public prefix only; the secret part is compared here, in constant time.
  return (await findSecrets(sql, prefixOf(secret))).find((row) => timingSafeEqual(row.hash, hash));
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
