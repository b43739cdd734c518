import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import type { Keyring, Sealed } from '../secrets/keyring.js';
import { countByOrg } from '../secrets/secrets.js';
import { clearSecrets, lockSealedElsewhere, replaceSecrets, type WebhookRow } from './queries.js';
import { openSecret, sealSecret } from './secret.js';

const BATCH = 200;

/** Seals secrets again that are sealed under an older key. Returns the number of webhooks. */
export async function resealWebhooks(pool: Pool, keyring: () => Keyring, actor: EventActor): Promise<number> {
  const keys = keyring();
  let count = 0;
  for (;;) {
    const done = await inTransaction(pool, async (tx) => {
      const rows = await lockSealedElsewhere(tx, keys.currentId, BATCH);
      const reseal = (row: WebhookRow, sealed: Sealed) => {
        const secret = openSecret(keys, row, sealed);
        if (secret === undefined) {
          throw new ExplainedError(
            `a secret of the webhook ${row.id} was sealed under the key ${sealed.keyId}, which is not there: put the key back, or rotate the secret with "sandkeep webhook rotate-secret"`,
          );
        }
        return sealSecret(keys, row, secret);
      };
      for (const row of rows) {
        await replaceSecrets(tx, {
          ...row,
          sealed: row.sealed && reseal(row, row.sealed),
          old_sealed: row.old_sealed.map((each) => reseal(row, each)),
        });
      }
      for (const [orgId, each] of countByOrg(rows)) {
        const payload = { count: each, key_id: keys.currentId };
        await recordEvent(tx, {
          orgId,
          type: 'secrets_resealed',
          actor,
          resourceId: null,
          at: now(),
          payload,
        });
      }
      return rows.length;
    });
    count += done;
    if (done < BATCH) return count;
  }
}

/** Erases all secrets after the keys were lost, and disables their webhooks. Returns the number of webhooks. */
export async function forgetWebhookSecrets(pool: Pool, actor: EventActor): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const at = now();
    const webhooks = await clearSecrets(tx, at);
    for (const [orgId, count] of countByOrg(webhooks)) {
      await recordEvent(tx, {
        orgId,
        type: 'secrets_forgotten',
        actor,
        resourceId: null,
        at,
        payload: { count },
      });
    }
    return webhooks.length;
  });
}
