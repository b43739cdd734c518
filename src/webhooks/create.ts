import { v7 as uuidv7 } from 'uuid';
import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { checkUrl } from '../outbound/destination.js';
import { checkTypes } from './event-types.js';
import { originOf, presentWebhook } from './present.js';
import { countWebhooks, insertWebhook } from './queries.js';
import type { CreateWebhookRequest, WebhookWithSecret } from './schema.js';
import { makeSecret, sealSecret } from './secret.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Each follows the log by itself, so there are not any number of them. */
const MOST = 20;

/** Makes a webhook, which is sent what happens from now on. The answer is the only place where its secret is seen. */
export async function createWebhook(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  request: CreateWebhookRequest,
): Promise<WebhookWithSecret> {
  const { description = null, event_types = [] } = request;
  checkTypes(event_types);
  const url = checkUrl(request.url, ctx.settings.webhooks.reach);
  const id = uuidv7();
  const at = ctx.now();
  const secret = makeSecret();
  return inTransaction(ctx.pool, async (tx) => {
    const count = await countWebhooks(tx, orgId);
    if (count >= MOST) {
      throw new ApiError('quota_exceeded', `an organization has at most ${MOST} webhooks`, {
        limit: MOST,
        used: count,
      });
    }
    const row = await insertWebhook(tx, {
      ...{ org_id: orgId, id, url, description, event_types, created_at: at, created_by: actor },
      sealed: sealSecret(ctx.keyring(), { org_id: orgId, id }, secret),
    });
    await recordEvent(tx, {
      orgId,
      type: 'webhook_created',
      actor,
      resourceId: id,
      at,
      payload: { webhook_id: id, destination: originOf(url), event_types },
    });
    return { ...presentWebhook(row, at), secret };
  });
}
