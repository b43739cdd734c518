import { v7 as uuidv7 } from 'uuid';
import { inTransaction } from '../db/transaction.js';
import type { Pool } from '../db/pool.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { now } from '../lib/instant.js';
import { insertKey } from './queries.js';
import { hashOf, makeKey, prefixOf } from './secret.js';

export interface NewKey {
  id: string;
  /** The only time the key itself is seen. */
  key: string;
}

export async function createKey(pool: Pool, orgId: string, name: string, actor: EventActor): Promise<NewKey> {
  const id = uuidv7();
  const key = makeKey();
  const at = now();
  await inTransaction(pool, async (tx) => {
    await insertKey(tx, {
      org_id: orgId,
      id,
      name,
      prefix: prefixOf(key),
      hash: hashOf(key),
      created_at: at,
    });
    await recordEvent(tx, {
      orgId,
      type: 'api_key_created',
      actor,
      resourceId: id,
      at,
      payload: { api_key_id: id, name, prefix: prefixOf(key) },
    });
  });
  return { id, key };
}
