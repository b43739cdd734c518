import { createHmac, randomBytes } from 'node:crypto';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import type { Keyring, Sealed } from '../secrets/keyring.js';
import { countByOrg } from '../secrets/secrets.js';
import { clearSecrets, lockSealedElsewhere, replaceSecrets, type WebhookRow } from './queries.js';

/** The form of https://www.standardwebhooks.com: libraries that verify it take the secret as it is. */
const SCHEME = 'whsec_';
const SECRET_BYTES = 32;
const BATCH = 200;

type Owner = Pick<WebhookRow, 'org_id' | 'id'>;

export function makeSecret(): string {
  return SCHEME + randomBytes(SECRET_BYTES).toString('base64');
}

/** Bound to the webhook: moved to another row it does not open. */
function aboutOf({ org_id, id }: Owner): string {
  return `${org_id}/webhook/${id}`;
}

export function sealSecret(keyring: Keyring, owner: Owner, secret: string): Sealed {
  return keyring.seal(secret, aboutOf(owner));
}

/** The header `webhook-signature`: one signature for each secret, so that a receiver which knows any of them is content. */
export function signatures(
  secrets: readonly string[],
  { id, timestamp, body }: { id: string; timestamp: number; body: string },
): string {
  return secrets
    .map((secret) => {
      const mac = createHmac('sha256', Buffer.from(secret.slice(SCHEME.length), 'base64'));
      return `v1,${mac.update(`${id}.${timestamp}.${body}`).digest('base64')}`;
    })
    .join(' ');
}

/**
 * The secrets that sign at this instant, the newest first. One of those before that cannot be opened is left out. Throws
 * ExplainedError when the newest cannot.
 */
export function openSecrets(keyring: Keyring, webhook: WebhookRow, at: string): string[] {
  const { sealed } = webhook;
  if (!sealed) throw new ExplainedError('the secret of the webhook is lost: rotate it');
  const newest = openSecret(keyring, webhook, sealed);
  if (newest === undefined) {
    throw new ExplainedError(
      `the secret of the webhook cannot be read: it was sealed under the key ${sealed.keyId}, which the service must be given, or was tampered with; a rotation gives it another`,
    );
  }
  const older = overlapping(webhook, at).map((each) => openSecret(keyring, webhook, each));
  return [newest, ...older.filter((each) => each !== undefined)];
}

/** Those that sign beside the newest at this instant. */
function overlapping({ old_sealed, old_until }: WebhookRow, at: string): Sealed[] {
  return old_until !== null && old_until > at ? old_sealed : [];
}

/** What a new secret replaces, the newest first: of a secret that cannot be opened nothing can go on. */
export function replacedSecrets(keyring: Keyring, webhook: WebhookRow, at: string): Sealed[] {
  const { sealed } = webhook;
  return [...(sealed ? [sealed] : []), ...overlapping(webhook, at)].filter(
    (each) => openSecret(keyring, webhook, each) !== undefined,
  );
}

function openSecret(keyring: Keyring, owner: Owner, sealed: Sealed): string | undefined {
  return keyring.open(sealed, aboutOf(owner));
}

/** Seals again whatever is sealed under an older key. Returns how many webhooks that were. */
export async function resealWebhooks(pool: Pool, keyring: () => Keyring, actor: EventActor): Promise<number> {
  const keys = keyring();
  let count = 0;
  for (;;) {
    const done = await inTransaction(pool, async (tx) => {
      const rows = await lockSealedElsewhere(tx, keys.currentId, BATCH);
      const again = (row: WebhookRow, sealed: Sealed) => {
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
          sealed: row.sealed && again(row, row.sealed),
          old_sealed: row.old_sealed.map((each) => again(row, each)),
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

/** Forgets every secret, when the keys are lost. What cannot sign is disabled. Returns how many webhooks that were. */
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
