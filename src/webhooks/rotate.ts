import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis, shortInstant } from '../lib/instant.js';
import { originOf, presentWebhook } from './present.js';
import { lockWebhook, replaceSecrets } from './queries.js';
import { DEFAULT_OVERLAP_SECS, type RotateWebhookSecretRequest, type WebhookWithSecret } from './schema.js';
import { makeSecret, replacedSecrets, sealSecret } from './secret.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Bounded, because every replaced secret adds a signature to each delivery. */
const MAX_REPLACED = 4;

/**
 * Gives a webhook a new secret. Previous secrets sign too during the overlap, so that the receiver refuses nothing
 * while it changes over. A caller that lost the response can rotate again.
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
      org_id: orgId,
      id,
      sealed: sealSecret(keyring, webhook, secret),
      old_sealed: overlap_secs === 0 ? [] : replaced.slice(0, MAX_REPLACED),
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
