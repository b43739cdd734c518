import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { attempt } from './attempt.js';
import { claimOne, insertDeliveries } from './delivery-queries.js';
import { originOf, presentDelivery } from './present.js';
import { lockWebhook } from './queries.js';
import type { DeliveryResponse } from './schema.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Sends one event of type `webhook_tested` at once, without retries, even if the webhook is disabled. */
export async function sendTest(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  id: string,
): Promise<DeliveryResponse> {
  const claimed = await inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockWebhook(tx, orgId, id);
    if (!webhook) throw new ApiError('sandbox_not_found');
    const at = ctx.now();
    const type = 'webhook_tested';
    const eventId = await recordEvent(tx, {
      orgId,
      type,
      actor,
      resourceId: id,
      at,
      payload: { webhook_id: id, destination: originOf(webhook.url) },
    });
    const delivery = newId();
    await insertDeliveries(tx, [
      {
        org_id: orgId,
        webhook_id: id,
        id: delivery,
        event_id: eventId,
        event_type: type,
        seq: null,
        // Expired at once, so that there is no retry.
        created_at: at,
        expires_at: at,
      },
    ]);
    // If this process is killed, `failLostTests` settles the delivery.
    const { timeoutMs, claimMarginMs } = ctx.settings.webhooks;
    const until = addMillis(at, timeoutMs + claimMarginMs);
    return claimOne(tx, orgId, id, delivery, { until, claim: newId() });
  });
  const settled = await attempt(ctx, claimed);
  if (!settled) throw new ApiError('sandbox_not_found');
  return presentDelivery(settled);
}
