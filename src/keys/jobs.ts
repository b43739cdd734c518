import { KEYS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { shortInstant } from '../lib/instant.js';
import { claimEndedElsewhere, claimExpired, deleteEndedSecrets } from './queries.js';
import { recordRevocation } from './revoke.js';

const BATCH = 100;

/**
 * Records the ends of keys, which are refused without that record too: expiries, and tokens that ended in another
 * organization. Deletes replaced secrets that have ended.
 */
export async function recordEndedKeys(ctx: Context, signal: AbortSignal): Promise<void> {
  let count: number;
  do {
    count = await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const expired = await claimExpired(tx, at, BATCH);
      for (const { org_id: orgId, id, name, prefix, expires_at } of expired) {
        const payload = { api_key_id: id, name, prefix, expires_at: shortInstant(expires_at) };
        await recordEvent(tx, { orgId, type: 'api_key_expired', actor: KEYS, resourceId: id, at, payload });
      }
      return expired.length;
    });
  } while (count === BATCH && !signal.aborted);
  do {
    count = await inTransaction(ctx.pool, async (tx) => {
      const ended = await claimEndedElsewhere(tx, BATCH);
      for (const key of ended) await recordRevocation(tx, key, KEYS, ctx.now());
      return ended.length;
    });
  } while (count === BATCH && !signal.aborted);
  await deleteEndedSecrets(ctx.pool, ctx.now());
}
