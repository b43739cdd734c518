import { type KeyRow } from '../access/key-queries.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type EventSql } from '../db/transaction.js';
import { now, type Instant } from '../lib/instant.js';
import { memberFact } from './create.js';
import { findOrgOfKey, lockKey, setRevoked } from './queries.js';

/** Revokes a key with all its secrets. The transaction holds its row. Returns the time of the first revocation. */
export async function revokeLocked(
  tx: EventSql,
  key: KeyRow,
  actor: EventActor,
  at: Instant,
): Promise<Instant> {
  if (key.revoked_at !== null) return key.revoked_at;
  await setRevoked(tx, key.org_id, key.id, at);
  await recordRevocation(tx, key, actor, at);
  return at;
}

export async function recordRevocation(
  tx: EventSql,
  key: KeyRow,
  actor: EventActor,
  at: Instant,
): Promise<void> {
  await recordEvent(tx, {
    orgId: key.org_id,
    type: 'api_key_revoked',
    actor,
    resourceId: key.id,
    at,
    payload: { api_key_id: key.id, name: key.name, prefix: key.prefix, ...memberFact(key) },
  });
}

/** The same for the operator, who names a key by its id alone; undefined when there is none. */
export async function revokeKey(pool: Pool, id: string, actor: EventActor): Promise<Instant | undefined> {
  const orgId = await findOrgOfKey(pool, id);
  if (orgId === undefined) return undefined;
  return inTransaction(pool, async (tx) => {
    const key = await lockKey(tx, orgId, id);
    return key && revokeLocked(tx, key, actor, now());
  });
}
