import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis } from '../lib/instant.js';
import { lockDelivery, makeDue } from './delivery-queries.js';
import { presentDelivery } from './present.js';
import { lockWebhook } from './queries.js';
import type { DeliveryResponse } from './schema.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Makes a delivery pending again, in any status, with as many retries as a new one. */
export async function redeliver(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  webhookId: string,
  id: string,
): Promise<DeliveryResponse> {
  return inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockWebhook(tx, orgId, webhookId);
    const delivery = webhook && (await lockDelivery(tx, orgId, webhookId, id));
    if (!webhook || !delivery) throw new ApiError('sandbox_not_found');
    if (webhook.status === 'disabled') {
      throw new ApiError('invalid_state_transition', 'the webhook is disabled: make it active first', {
        status: webhook.status,
        operation: 'redeliver',
      });
    }
    const at = ctx.now();
    const due = await makeDue(tx, delivery, {
      at,
      expiresAt: addMillis(at, ctx.settings.webhooks.keepTryingMs),
    });
    await recordEvent(tx, {
      orgId,
      type: 'webhook_redelivery_requested',
      actor,
      resourceId: webhookId,
      at,
      payload: { webhook_id: webhookId, delivery_id: id, event_id: delivery.event_id },
    });
    return presentDelivery(due);
  });
}
