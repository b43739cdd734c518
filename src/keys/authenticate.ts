import { timingSafeEqual } from 'node:crypto';
import type { Sql } from '../db/pool.js';
import type { Caller } from '../http/auth.js';
import { findLiveKeys } from './queries.js';
import { hashOf, isWellFormedKey, prefixOf } from './secret.js';

/** Whose key this is; undefined for every kind of bad key alike. */
export async function authenticate(sql: Sql, key: string): Promise<Caller | undefined> {
  if (!isWellFormedKey(key)) return undefined;
  const hash = hashOf(key);
  // The index finds by the public prefix only; the secret part is compared here, in constant time.
  const found = (await findLiveKeys(sql, prefixOf(key))).find((row) => timingSafeEqual(row.hash, hash));
  if (!found) return undefined;
  return { orgId: found.org_id, actor: { kind: 'api_key', api_key_id: found.id, name: found.name } };
}
