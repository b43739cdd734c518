import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import { OCSF_VERSION } from '../audit/ocsf/mapping.js';
import { DateTime, Field, Named, Nullable, PageOf, Uuid, Words } from '../http/schema.js';

export const WEBHOOK_FORMATS = ['sandkeep', 'cloudevents', 'ocsf'] as const;
export type WebhookFormat = (typeof WEBHOOK_FORMATS)[number];
const WEBHOOK_STATUSES = ['active', 'disabled'] as const;
export const DELIVERY_STATUSES = ['pending', 'delivered', 'failed'] as const;
const URL_LENGTH = 2_000;
const MAX_TYPES = 50;
export const LONGEST_OVERLAP_SECS = 7 * 86_400;
export const DEFAULT_OVERLAP_SECS = 86_400;

const url = Type.String({
  minLength: 1,
  maxLength: URL_LENGTH,
  description:
    'The `https` address that events are posted to, without a user name. Redirects are not followed.',
});
const description = Nullable(Type.String({ maxLength: 200, description: 'The purpose of the webhook.' }));
const eventTypes = Type.Array(Type.String({ maxLength: 200 }), {
  maxItems: MAX_TYPES,
  description:
    'The event types to send. If each begins with `!`, all others are sent. Empty: all types. `docs/audit-events.md` lists them.',
});
const format = Words([...WEBHOOK_FORMATS], {
  description: `The form of the body: that of this API, CloudEvents 1.0 in structured mode, or OCSF ${OCSF_VERSION}. Each has the same signature.`,
});
const status = Words([...WEBHOOK_STATUSES], {
  description: 'Nothing is sent while the webhook is `disabled`.',
});

export const CreateWebhookRequest = Type.Object(
  {
    url,
    description: Type.Optional(description),
    event_types: Type.Optional(eventTypes),
    format: Type.Optional({ ...format, default: 'sandkeep' }),
  },
  { title: 'CreateWebhookRequest', description: 'The webhook to create.', additionalProperties: false },
);
export type CreateWebhookRequest = Static<typeof CreateWebhookRequest>;

export const UpdateWebhookRequest = Type.Object(
  {
    url: Type.Optional(url),
    description: Type.Optional(description),
    event_types: Type.Optional(eventTypes),
    format: Type.Optional(format),
    status: Type.Optional(status),
  },
  {
    title: 'UpdateWebhookRequest',
    description: 'The changes to a webhook. Fields that are left out stay.',
    additionalProperties: false,
  },
);
export type UpdateWebhookRequest = Static<typeof UpdateWebhookRequest>;

export const RotateWebhookSecretRequest = Type.Object(
  {
    overlap_secs: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: LONGEST_OVERLAP_SECS,
        default: DEFAULT_OVERLAP_SECS,
        description: 'The seconds for which previous secrets still sign. 0: they end at once.',
      }),
    ),
  },
  {
    title: 'RotateWebhookSecretRequest',
    description: 'The time for which previous secrets still sign.',
    additionalProperties: false,
  },
);
export type RotateWebhookSecretRequest = Static<typeof RotateWebhookSecretRequest>;

const webhook = {
  id: Field(Uuid, 'The id of the webhook.'),
  org_id: Field(Uuid, 'The organization that the webhook belongs to.'),
  url: Type.String({ description: 'The address that events are posted to.' }),
  description: Nullable(Type.String({ description: 'The purpose of the webhook.' })),
  event_types: Type.Array(Type.String(), {
    description: 'The event types to send, or with `!` those to leave out. Empty: all types.',
  }),
  format,
  status,
  disabled_reason: Field(
    Nullable(Words(['failing', 'gone', 'secret_lost'])),
    'The reason for which the service disabled the webhook. `failing`: only failures for days. `gone`: the receiver answered 410. `secret_lost`: the secret cannot be read. Null: it did not.',
  ),
  failing_since: Field(Nullable(DateTime), 'The time since which every attempt has failed. Null: none has.'),
  previous_secret_until: Field(
    Nullable(DateTime),
    'The time until which previous secrets still sign. Null: there are none.',
  ),
  created_at: Field(DateTime, 'The time at which the webhook was created.'),
  created_by: Field(EventActor, 'The actor who created the webhook.'),
  updated_at: Field(DateTime, 'The time at which the webhook last changed.'),
};

export const WebhookResponse = Named(
  'WebhookResponse',
  webhook,
  'An address that audit events are posted to.',
);
export type WebhookResponse = Static<typeof WebhookResponse>;

export const WebhookWithSecret = Named(
  'WebhookWithSecret',
  {
    ...webhook,
    secret: Type.String({
      description: 'The secret that signs each request (`whsec_…`). It is shown only in this answer.',
    }),
  },
  'A webhook with its secret.',
);
export type WebhookWithSecret = Static<typeof WebhookWithSecret>;

export const PaginatedWebhookResponse = PageOf('PaginatedWebhookResponse', WebhookResponse);

const AttemptResponse = Named(
  'WebhookAttempt',
  {
    at: Field(DateTime, 'The time of the attempt.'),
    duration_ms: Type.Integer({ description: 'The duration of the attempt in milliseconds.' }),
    response_status: Nullable(
      Type.Integer({ description: 'The status of the answer. Null: there was none.' }),
    ),
    response_body: Nullable(
      Type.String({ description: 'The first KiB of the answer. Null: there was none.' }),
    ),
    error: Nullable(Type.String({ description: 'The reason for which there is no answer.' })),
  },
  'One attempt to post an event.',
);
export type AttemptResponse = Static<typeof AttemptResponse>;

export const DeliveryResponse = Named(
  'WebhookDelivery',
  {
    id: Field(Uuid, 'The id of the delivery.'),
    webhook_id: Field(Uuid, 'The id of the webhook.'),
    event_id: Field(Uuid, 'The id of the audit event.'),
    event_type: Type.String({ description: 'The type of the audit event.' }),
    seq: Nullable(Type.Integer({ description: 'The place of the event in the event log. Null for a test.' })),
    status: Words([...DELIVERY_STATUSES], {
      description:
        '`pending` until the receiver accepts the event or the service gives up, then `delivered` or `failed`.',
    }),
    attempts: Type.Integer({ description: 'The number of attempts so far.' }),
    next_attempt_at: Field(Nullable(DateTime), 'The time of the next attempt. Null: there will be none.'),
    created_at: Field(DateTime, 'The time at which the delivery was created.'),
    settled_at: Field(Nullable(DateTime), 'The time at which the delivery ended. Null: it is pending.'),
    results: Type.Array(AttemptResponse, { description: 'The latest attempts, oldest first.' }),
  },
  'One event for one webhook.',
);
export type DeliveryResponse = Static<typeof DeliveryResponse>;

export const PaginatedDeliveryResponse = PageOf('PaginatedWebhookDelivery', DeliveryResponse);
