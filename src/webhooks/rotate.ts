import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis, shortInstant } from '../lib/instant.js';
import { originOf, presentWebhook } from './present.js';
import { lockWebhook, replaceSecrets } from './queries.js';
import { DEFAULT_OVERLAP_SECS, type RotateWebhookSecretRequest, type WebhookWithSecret } from './schema.js';
import { makeSecret, replacedSecrets, sealSecret } from './secret.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** So many replaced secrets sign at most: each is a signature in a header of every delivery. */
const MOST_OLD = 4;

/**
 * Gives a webhook a new secret. The one before signs as well for a time, so that the receiver can change over without refusing
 * anything; those that still sign by then go on with it. Who lost the answer can rotate again, and the secret that the receiver
 * has still signs.
 */
export async function rotateSecret(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  id: string,
  { overlap_secs = DEFAULT_OVERLAP_SECS }: RotateWebhookSecretRequest,
): Promise<WebhookWithSecret> {
  const secret = makeSecret();
  return inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockWebhook(tx, orgId, id);
    if (!webhook) throw new ApiError('sandbox_not_found');
    const at = ctx.now();
    const until = addMillis(at, overlap_secs * 1000);
    const keyring = ctx.keyring();
    const replaced = replacedSecrets(keyring, webhook, at);
    const row = await replaceSecrets(tx, {
      ...{ org_id: orgId, id },
      sealed: sealSecret(keyring, webhook, secret),
      old_sealed: overlap_secs === 0 ? [] : replaced.slice(0, MOST_OLD),
      old_until: until,
    });
    await recordEvent(tx, {
      orgId,
      type: 'webhook_secret_rotated',
      actor,
      resourceId: id,
      at,
      payload: {
        webhook_id: id,
        destination: originOf(webhook.url),
        previous_until: row.old_until === null ? null : shortInstant(row.old_until),
      },
    });
    return { ...presentWebhook(row, at), secret };
  });
}
