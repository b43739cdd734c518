import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { originOf } from './present.js';
import { lockWebhook, markDeleted } from './queries.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Stops all deliveries at once. A job deletes their rows later, because a request has no time for many. */
export async function deleteWebhook(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  id: string,
): Promise<void> {
  await inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockWebhook(tx, orgId, id);
    if (!webhook) throw new ApiError('sandbox_not_found');
    const at = ctx.now();
    await markDeleted(tx, orgId, id, at);
    await recordEvent(tx, {
      orgId,
      type: 'webhook_deleted',
      actor,
      resourceId: id,
      at,
      payload: { webhook_id: id, destination: originOf(webhook.url) },
    });
  });
}
