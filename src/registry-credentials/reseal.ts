import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import type { Keyring } from '../secrets/keyring.js';
import { countByOrg } from '../secrets/secrets.js';
import { openPassword, sealPassword } from './password.js';
import { clearPasswords, lockSealedElsewhere, updateCredentialRow } from './queries.js';

const BATCH = 200;

/** Seals passwords again that are sealed under an older key. Returns their number. */
export async function resealCredentials(
  pool: Pool,
  keyring: () => Keyring,
  actor: EventActor,
): Promise<number> {
  const keys = keyring();
  let count = 0;
  for (;;) {
    const done = await inTransaction(pool, async (tx) => {
      const rows = await lockSealedElsewhere(tx, keys.currentId, BATCH);
      for (const row of rows) {
        const password = openPassword(keys, row, row.sealed!);
        if (password === undefined) {
          throw new ExplainedError(
            `the password of the registry credential ${row.id} was sealed under the key ${row.sealed!.keyId}, which is missing: add the key, or delete the credential`,
          );
        }
        await updateCredentialRow(tx, { ...row, sealed: sealPassword(keys, row, password) });
      }
      const at = now();
      for (const [orgId, each] of countByOrg(rows)) {
        const payload = { count: each, key_id: keys.currentId };
        await recordEvent(tx, { orgId, type: 'secrets_resealed', actor, resourceId: null, at, payload });
      }
      return rows.length;
    });
    count += done;
    if (done < BATCH) return count;
  }
}

/** Deletes all passwords after the keys were lost. Returns their number. */
export async function forgetCredentials(pool: Pool, actor: EventActor): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const at = now();
    const cleared = await clearPasswords(tx, at);
    for (const [orgId, count] of countByOrg(cleared)) {
      const payload = { count };
      await recordEvent(tx, { orgId, type: 'secrets_forgotten', actor, resourceId: null, at, payload });
    }
    return cleared.length;
  });
}
