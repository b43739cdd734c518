import { Type, type Static } from 'typebox';
import { EventActor } from '../events/schema.js';
import { DateTime, Named, Nullable, PageOf, Uuid, Words } from '../http/schema.js';

const WEBHOOK_STATUSES = ['active', 'disabled'] as const;
export const DELIVERY_STATUSES = ['pending', 'delivered', 'failed'] as const;
const URL_LENGTH = 2_000;
const MAX_TYPES = 50;
/** A week: by then every receiver has been given the new secret, or nobody is going to. */
export const LONGEST_OVERLAP_SECS = 7 * 86_400;
export const DEFAULT_OVERLAP_SECS = 86_400;

const url = Type.String({
  minLength: 1,
  maxLength: URL_LENGTH,
  description: 'Where events are posted to: `https://…`, without a user name. Redirects are not followed.',
});
const description = Nullable(Type.String({ maxLength: 200, description: 'What it is for.' }));
const eventTypes = Type.Array(Type.String({ maxLength: 200 }), {
  maxItems: MAX_TYPES,
  description:
    'Which event types are sent: these, or, when each begins with `!`, all others. Empty: all of the organization. `docs/audit-events.md` lists them.',
});
const status = Words([...WEBHOOK_STATUSES], { description: 'Nothing is sent while it is `disabled`.' });

export const CreateWebhookRequest = Type.Object(
  {
    url,
    description: Type.Optional(description),
    event_types: Type.Optional(eventTypes),
  },
  { title: 'CreateWebhookRequest', additionalProperties: false },
);
export type CreateWebhookRequest = Static<typeof CreateWebhookRequest>;

export const UpdateWebhookRequest = Type.Object(
  {
    url: Type.Optional(url),
    description: Type.Optional(description),
    event_types: Type.Optional(eventTypes),
    status: Type.Optional(status),
  },
  { title: 'UpdateWebhookRequest', description: 'What is left out stays.', additionalProperties: false },
);
export type UpdateWebhookRequest = Static<typeof UpdateWebhookRequest>;

export const RotateWebhookSecretRequest = Type.Object(
  {
    overlap_secs: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: LONGEST_OVERLAP_SECS,
        default: DEFAULT_OVERLAP_SECS,
        description: 'How long the secret before, and those that sign beside it, go on. 0: they end at once.',
      }),
    ),
  },
  { title: 'RotateWebhookSecretRequest', additionalProperties: false },
);
export type RotateWebhookSecretRequest = Static<typeof RotateWebhookSecretRequest>;

const webhook = {
  id: Uuid,
  org_id: Uuid,
  url: Type.String(),
  description: Nullable(Type.String()),
  event_types: Type.Array(Type.String()),
  status,
  disabled_reason: Nullable(
    Words(['failing', 'gone', 'secret_lost'], {
      description:
        'Why Sandkeep disabled it: nothing but failures for a long time, the answer 410, or its secret is lost.',
    }),
  ),
  failing_since: Nullable(DateTime),
  previous_secret_until: Nullable(DateTime),
  created_at: DateTime,
  created_by: EventActor,
  updated_at: DateTime,
};

export const WebhookResponse = Named('WebhookResponse', webhook);
export type WebhookResponse = Static<typeof WebhookResponse>;

export const WebhookWithSecret = Named('WebhookWithSecret', {
  ...webhook,
  secret: Type.String({ description: 'Signs what is sent (`whsec_…`). Shown only now.' }),
});
export type WebhookWithSecret = Static<typeof WebhookWithSecret>;

export const PaginatedWebhookResponse = PageOf('PaginatedWebhookResponse', WebhookResponse);

const AttemptResponse = Named('WebhookAttempt', {
  at: DateTime,
  duration_ms: Type.Integer(),
  response_status: Nullable(Type.Integer()),
  response_body: Nullable(Type.String({ description: 'The first KiB of it.' })),
  error: Nullable(Type.String({ description: 'Why there is no answer.' })),
});
export type AttemptResponse = Static<typeof AttemptResponse>;

export const DeliveryResponse = Named('WebhookDelivery', {
  id: Uuid,
  webhook_id: Uuid,
  event_id: Uuid,
  event_type: Type.String(),
  seq: Nullable(Type.Integer({ description: 'The place of the event in the log; null for a test.' })),
  status: Words([...DELIVERY_STATUSES]),
  attempts: Type.Integer(),
  next_attempt_at: Nullable(DateTime),
  created_at: DateTime,
  settled_at: Nullable(DateTime),
  results: Type.Array(AttemptResponse, { description: 'The latest attempts, oldest first.' }),
});
export type DeliveryResponse = Static<typeof DeliveryResponse>;

export const PaginatedDeliveryResponse = PageOf('PaginatedWebhookDelivery', DeliveryResponse);
