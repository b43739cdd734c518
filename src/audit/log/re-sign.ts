import type { Sql } from '../../db/pool.js';
import { type EventKeys } from '../events/event-keys.js';
import { checkSignature, signCheckpoint } from './checkpoint.js';
import {
  allowRemoval,
  deleteDrop,
  getRetention,
  insertDrop,
  listDrops,
  updateRetention,
} from './retention-queries.js';
import { isRetentionTrusted, signRetention } from './retention-signature.js';
import { keysSince } from './signed-text.js';

/**
 * Keeps holders of the old key from forging these records. Untrusted ones stay, for verification. The caller signs the
 * head.
 */
export async function reSignRetention(
  tx: Sql,
  keys: EventKeys,
  orgId: string,
  headKey: string,
): Promise<void> {
  const retention = await getRetention(tx, orgId);
  if (retention?.retention_at && isRetentionTrusted(retention, keysSince(keys.known, headKey))) {
    const { retention_months, retention_at } = retention;
    await updateRetention(tx, signRetention(keys, orgId, retention_months, retention_at));
  }
  const drops = await listDrops(tx, orgId);
  await allowRemoval(tx);
  for (const drop of drops) {
    if (checkSignature(drop, keys.known, headKey)) continue;
    await deleteDrop(tx, drop);
    await insertDrop(tx, signCheckpoint(keys, drop));
  }
}
