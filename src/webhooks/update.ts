import { recordEvent } from '../audit/events/record.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { checkUrl } from '../outbound/destination.js';
import { checkTypes } from './event-types.js';
import { originOf, presentWebhook } from './present.js';
import { lockWebhook, updateWebhookRow, type WebhookRow } from './queries.js';
import type { UpdateWebhookRequest, WebhookResponse } from './schema.js';
import type { WebhookCaller, WebhookContext } from './webhook-context.js';

/** Changes the given fields. A webhook that becomes active again continues in the log at its position. */
export async function updateWebhook(
  ctx: WebhookContext,
  { orgId, actor }: WebhookCaller,
  id: string,
  request: UpdateWebhookRequest,
): Promise<WebhookResponse> {
  checkTypes(request.event_types ?? []);
  const url = request.url === undefined ? undefined : checkUrl(request.url, ctx.settings.webhooks.reach);
  return inTransaction(ctx.pool, async (tx) => {
    const before = await lockWebhook(tx, orgId, id);
    if (!before) throw new ApiError('sandbox_not_found');
    const status = request.status ?? before.status;
    if (status === 'active' && before.sealed === null) {
      throw new ApiError('invalid_state_transition', 'the secret of the webhook is lost: rotate it first', {
        status: before.status,
        operation: 'update',
      });
    }
    const at = ctx.now();
    const after: WebhookRow = {
      ...before,
      url: url ?? before.url,
      description: request.description === undefined ? before.description : request.description,
      event_types: request.event_types ?? before.event_types,
      format: request.format ?? before.format,
      status,
      disabled_reason: status === 'active' ? null : before.disabled_reason,
      updated_at: at,
    };
    const row = await updateWebhookRow(tx, after);
    await recordEvent(tx, {
      orgId,
      type: 'webhook_updated',
      actor,
      resourceId: id,
      at,
      payload: {
        webhook_id: id,
        before: auditedFields(before),
        after: auditedFields(row),
        url_changed: before.url !== row.url,
      },
    });
    return presentWebhook(row, at);
  });
}

function auditedFields({ url, description, event_types, format, status }: WebhookRow) {
  return { destination: originOf(url), description, event_types, format, status };
}
