import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import type { Shared } from '../context.js';
import { ApiError } from '../http/errors.js';
import { answers, answersToBody, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid, Words } from '../http/schema.js';
import { Slots } from '../fairness/slots.js';
import { createWebhook } from './create.js';
import { deleteWebhook } from './delete.js';
import { listWebhooks, listLog } from './list.js';
import { presentWebhook } from './present.js';
import { getWebhook } from './queries.js';
import { redeliver } from './redeliver.js';
import { rotateSecret } from './rotate.js';
import {
  CreateWebhookRequest,
  DELIVERY_STATUSES,
  DeliveryResponse,
  PaginatedDeliveryResponse,
  PaginatedWebhookResponse,
  RotateWebhookSecretRequest,
  UpdateWebhookRequest,
  WebhookResponse,
  WebhookWithSecret,
} from './schema.js';
import { sendTest } from './send-test.js';
import { updateWebhook } from './update.js';

/** A webhook exposes the whole audit trail to its receiver, which only administrators may allow. */
const common = { tags: ['webhooks'], scope: 'org:admin' } as const;
const params = Type.Object({ webhook_id: Field(Uuid, 'The id of the webhook.') });

export function webhookRoutes(app: App, ctx: Shared): void {
  // Bounded, because a test holds its request until the receiver responds.
  const testLimit = new Slots(ctx.settings.webhooks.tests);

  app.get(
    '/v1/webhooks',
    {
      schema: {
        ...common,
        operationId: 'list_webhooks',
        summary: 'List webhooks, oldest first',
        description: 'Returns one page of the webhooks of the organization, without their secrets.',
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedWebhookResponse),
      },
    },
    (request) => listWebhooks(contextOf(request), callerOf(request).orgId, request.query),
  );

  app.post(
    '/v1/webhooks',
    {
      schema: {
        ...common,
        operationId: 'create_webhook',
        summary: 'Create a webhook',
        description:
          'Posts audit events from now on to the URL, signed by the rules of https://www.standardwebhooks.com. The secret is shown only in this answer. The operation takes no `Idempotency-Key`, because the service would have to store the secret for it.',
        body: CreateWebhookRequest,
        response: answersToBody(WebhookWithSecret, 'quota_exceeded'),
      },
    },
    (request) => createWebhook(contextOf(request), callerOf(request), request.body),
  );

  app.get(
    '/v1/webhooks/:webhook_id',
    {
      schema: {
        ...common,
        operationId: 'get_webhook',
        summary: 'Get a webhook',
        description: 'Returns one webhook of the organization by its id, without its secret.',
        params,
        response: answers(WebhookResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const row = await getWebhook(
        contextOf(request).pool,
        callerOf(request).orgId,
        request.params.webhook_id,
      );
      if (!row) throw new ApiError('sandbox_not_found');
      return presentWebhook(row, ctx.now());
    },
  );

  app.patch(
    '/v1/webhooks/:webhook_id',
    {
      schema: {
        ...common,
        operationId: 'update_webhook',
        summary: 'Change a webhook',
        description:
          'Changes the given fields. A webhook that becomes `active` again is sent the events that it has missed.',
        params,
        body: UpdateWebhookRequest,
        response: answersToBody(WebhookResponse, 'sandbox_not_found', 'invalid_state_transition'),
      },
    },
    (request) =>
      updateWebhook(contextOf(request), callerOf(request), request.params.webhook_id, request.body),
  );

  app.delete(
    '/v1/webhooks/:webhook_id',
    {
      schema: {
        ...common,
        operationId: 'delete_webhook',
        summary: 'Delete a webhook and its deliveries',
        description: 'Removes the webhook. Nothing more is sent to it.',
        params,
        response: answersToBody(MessageResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      await deleteWebhook(contextOf(request), callerOf(request), request.params.webhook_id);
      return { message: 'webhook deleted' };
    },
  );

  app.post(
    '/v1/webhooks/:webhook_id/rotate-secret',
    {
      schema: {
        ...common,
        operationId: 'rotate_webhook_secret',
        summary: 'Give a webhook a new secret',
        description:
          'Returns a new secret, which is shown only in this answer. Until `previous_secret_until` the previous secrets sign too. If the answer is lost, rotate again; the secret of the receiver stays valid.',
        params,
        body: RotateWebhookSecretRequest,
        response: answersToBody(WebhookWithSecret, 'sandbox_not_found'),
      },
    },
    (request) => rotateSecret(contextOf(request), callerOf(request), request.params.webhook_id, request.body),
  );

  app.post(
    '/v1/webhooks/:webhook_id/test',
    {
      config: { waits: true },
      schema: {
        ...common,
        operationId: 'test_webhook',
        summary: 'Send a test event to a webhook',
        description:
          'Posts one event of the type `webhook_tested` now, without retries, and returns its delivery.',
        params,
        response: answersToBody(DeliveryResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const caller = callerOf(request);
      const release = testLimit.acquire(caller.orgId);
      if (!release) {
        throw new ApiError('rate_limited', 'too many webhooks are being tested: try again later', null, {
          headers: { 'retry-after': '5' },
        });
      }
      return sendTest(contextOf(request), caller, request.params.webhook_id).finally(release);
    },
  );

  app.get(
    '/v1/webhooks/:webhook_id/deliveries',
    {
      schema: {
        ...common,
        operationId: 'list_webhook_deliveries',
        summary: 'List the deliveries of a webhook, newest first',
        description: 'Returns one page of deliveries. Settled ones are kept for 30 days.',
        params,
        querystring: Type.Object(
          {
            status: Type.Optional(
              Words([...DELIVERY_STATUSES], { description: 'Only deliveries with this status.' }),
            ),
            ...PageQuery,
          },
          { additionalProperties: false },
        ),
        response: answers(PaginatedDeliveryResponse, 'sandbox_not_found'),
      },
    },
    (request) =>
      listLog(contextOf(request), callerOf(request).orgId, request.params.webhook_id, request.query),
  );

  app.post(
    '/v1/webhooks/:webhook_id/deliveries/:delivery_id/redeliver',
    {
      schema: {
        ...common,
        operationId: 'redeliver_webhook_event',
        summary: 'Send an event to a webhook again',
        description: 'Makes a delivery pending again, in any status, so that its event is sent again.',
        params: Type.Object({
          ...params.properties,
          delivery_id: Field(Uuid, 'The id of the delivery.'),
        }),
        response: answersToBody(DeliveryResponse, 'sandbox_not_found', 'invalid_state_transition'),
      },
    },
    (request) => {
      const { webhook_id, delivery_id } = request.params;
      return redeliver(contextOf(request), callerOf(request), webhook_id, delivery_id);
    },
  );
}
