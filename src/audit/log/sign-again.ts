import type { Sql } from '../../db/pool.js';
import { type EventKeys } from '../events/event-keys.js';
import { checkSignature, signPlace } from './checkpoint.js';
import {
  allowRemoval,
  deleteDrop,
  getKeptFor,
  insertDrop,
  readDrops,
  updateKeptFor,
} from './retention-queries.js';
import { isTrusted, signKeptFor } from './retention-signature.js';
import { keysSince } from './signing-key.js';

/**
 * Signs under the new key what counts beside the end of a log: how long events are kept, and what was dropped. From then on whoever
 * has an old key can say neither. What nobody signed who is believed stays as it is, for those who verify. For who holds the chain
 * and signs its end. `endKey`: the id of the key that signed it before.
 */
export async function signAnew(tx: Sql, keys: EventKeys, orgId: string, endKey: string): Promise<void> {
  const kept = await getKeptFor(tx, orgId);
  if (kept?.retention_at && isTrusted(kept, keysSince(keys.known, endKey))) {
    await updateKeptFor(tx, signKeptFor(keys, orgId, kept.retention_months, kept.retention_at));
  }
  const drops = await readDrops(tx, orgId);
  await allowRemoval(tx);
  for (const drop of drops) {
    if (checkSignature(drop, keys.known, endKey)) continue;
    await deleteDrop(tx, drop);
    await insertDrop(tx, signPlace(keys, drop));
  }
}
