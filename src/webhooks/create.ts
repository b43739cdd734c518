import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { newId } from '../lib/uuid.js';
import { checkUrl } from '../outbound/destination.js';
import { checkTypes } from './event-types.js';
import { originOf, presentWebhook } from './present.js';
import { countWebhooks, insertWebhook } from './queries.js';
import type { CreateWebhookRequest, WebhookWithSecret } from './schema.js';
import { makeSecret, sealSecret } from './secret.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Bounded, because every webhook reads the log separately. */
const MAX_WEBHOOKS = 20;

/** Creates a webhook for events from now on. Only the returned value contains its secret. */
export async function createWebhook(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  request: CreateWebhookRequest,
): Promise<WebhookWithSecret> {
  const { description = null, event_types = [], format = 'sandkeep' } = request;
  checkTypes(event_types);
  const url = checkUrl(request.url, ctx.settings.webhooks.reach);
  const id = newId();
  const at = ctx.now();
  const secret = makeSecret();
  return inTransaction(ctx.pool, async (tx) => {
    const count = await countWebhooks(tx, orgId);
    if (count >= MAX_WEBHOOKS) {
      throw new ApiError('quota_exceeded', `an organization has at most ${MAX_WEBHOOKS} webhooks`, {
        limit: MAX_WEBHOOKS,
        used: count,
      });
    }
    const row = await insertWebhook(tx, {
      org_id: orgId,
      id,
      url,
      description,
      event_types,
      format,
      created_at: at,
      created_by: actor,
      sealed: sealSecret(ctx.keyring(), { org_id: orgId, id }, secret),
    });
    await recordEvent(tx, {
      orgId,
      type: 'webhook_created',
      actor,
      resourceId: id,
      at,
      payload: { webhook_id: id, destination: originOf(url), event_types, format },
    });
    return { ...presentWebhook(row, at), secret };
  });
}
