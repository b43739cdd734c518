import { inTransaction } from '../db/transaction.js';
import type { Pool } from '../db/pool.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { now, type Instant } from '../lib/instant.js';
import { lockKey, setRevoked } from './queries.js';

/** Revokes a key from the next request on; returns since when it is revoked, or undefined when there is none. */
export async function revokeKey(pool: Pool, id: string, actor: EventActor): Promise<Instant | undefined> {
  return inTransaction(pool, async (tx) => {
    const key = await lockKey(tx, id);
    if (!key) return undefined;
    if (key.revoked_at) return key.revoked_at;
    const at = now();
    await setRevoked(tx, key.org_id, id, at);
    await recordEvent(tx, {
      orgId: key.org_id,
      type: 'api_key_revoked',
      actor,
      resourceId: id,
      at,
      payload: { api_key_id: id, name: key.name, prefix: key.prefix },
    });
    return at;
  });
}
