import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { readCursor } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { listDeliveries } from './delivery-queries.js';
import { presentDelivery, presentWebhook } from './present.js';
import { getWebhook, getWebhooks } from './queries.js';
import type { DeliveryResponse, WebhookResponse } from './schema.js';

export async function listWebhooks(
  ctx: Context,
  orgId: string,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<WebhookResponse>> {
  const binding = ['webhooks'];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
  const at = ctx.now();
  return toPage(
    await getWebhooks(ctx.pool, orgId, after, limit + 1),
    limit,
    (row) => presentWebhook(row, at),
    ({ created_at, id }) => ctx.cursors.encode(orgId, binding, [created_at, id]),
  );
}

export async function listLog(
  ctx: Context,
  orgId: string,
  webhookId: string,
  { status, cursor, limit = PAGE_LIMIT.default }: PageQuery & { status?: DeliveryResponse['status'] },
): Promise<Page<DeliveryResponse>> {
  const binding = ['webhook deliveries', webhookId, status ?? null];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
  if (!(await getWebhook(ctx.pool, orgId, webhookId))) throw new ApiError('sandbox_not_found');
  return toPage(
    await listDeliveries(ctx.pool, orgId, webhookId, status, after, limit + 1),
    limit,
    presentDelivery,
    ({ created_at, id }) => ctx.cursors.encode(orgId, binding, [created_at, id]),
  );
}
