import { Type, type Static, type TProperties, type TSchema } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid, Words } from '../../http/schema.js';
import { STATUSES } from '../../sandboxes/spec/schema.js';
import type { EventActor } from './schema.js';

/**
 * Every event this service writes. History that is imported may bring others. docs/audit-events.md is made from this, and
 * what does not fit it does not compile, or fails the test that wrote it.
 */

type ActorKind = EventActor['kind'];

interface Entry<Payload extends TSchema> {
  category: string;
  /** Who can be the actor. */
  actors: readonly ActorKind[];
  /** When it is written, as a sentence. */
  when: string;
  payload: Payload;
}

function event<P extends TProperties>(
  category: string,
  actors: readonly ActorKind[],
  when: string,
  payload: P,
): Entry<ReturnType<typeof closed<P>>> {
  return { category, actors, when, payload: closed(payload) };
}

function closed<P extends TProperties>(properties: P) {
  return Type.Object(properties, { additionalProperties: false });
}

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const reason = Type.String({ description: 'Why, as a word.' });
const time = Nullable(DateTime);
const status = Words([...STATUSES]);
const CALLER = ['api_key', 'user'] as const;
const OPERATOR = ['system'] as const;
const SYSTEM = ['system'] as const;
const ANYONE = ['api_key', 'user', 'system'] as const;

/** What every event of a sandbox begins with. */
const sandbox = { sandbox_id: Uuid, name: text };
const transition = { previous_status: status, status, reason };
const run = { ...sandbox, run_id: Nullable(Uuid) };
const end = {
  ...run,
  reason,
  message: Nullable(text),
  exit_code: Nullable(Type.Integer()),
  started_at: time,
  stopped_at: time,
};
const volume = { volume_id: Uuid, name: Nullable(text) };
const names = closed({ name: text, slug: text });
const labels = closed({ labels: StringMap() });
const volumeProperties = closed({ capacity_gib: Nullable(Type.Integer()), labels: StringMap() });
const quotas = Type.Record(text, Type.Union([Type.Integer(), Type.Boolean(), Type.Null()]));
const member = { member_id: Uuid, user_id: Uuid, redacted_email: text, role: text };
const key = { api_key_id: Uuid, name: text, prefix: text };
/** Scheme, host and port: paths of webhooks have secrets in them. */
const webhook = { webhook_id: Uuid, destination: text };
const webhookProperties = closed({
  destination: text,
  description: Nullable(text),
  event_types: Type.Array(text),
  status: text,
});

export const CATALOGUE = {
  org_created: event('org', OPERATOR, 'An organization was made.', { name: text, slug: text }),
  history_imported: event(
    'org',
    OPERATOR,
    'History was imported: how many records of each kind were new. The events among them are what others wrote elsewhere.',
    { sandboxes: count, runs: count, volumes: count, accruals: count, events: count },
  ),
  quota_changed: event(
    'quota',
    ANYONE,
    'What the organization may have was changed: the quotas that differ.',
    {
      before: quotas,
      after: quotas,
    },
  ),
  price_book_changed: event(
    'billing',
    SYSTEM,
    'A service began with another price book than the one before it, or with none (null). The hash is SHA-256 of its canonical JSON.',
    { sha256: Nullable(text), previous_sha256: Nullable(text), currency: Nullable(text) },
  ),
  member_added: event('member', ANYONE, 'A person was listed as a member.', member),
  member_removed: event('member', ANYONE, 'A person was taken off the list of members.', member),

  api_key_created: event('api_key', ANYONE, 'An API key was made.', {
    ...key,
    scopes: Type.Array(text),
    labels: StringMap(),
    cidrs: Type.Array(text),
    expires_at: time,
  }),
  api_key_first_used: event('api_key', ['api_key'], 'An API key was used for the first time.', key),
  api_key_rotated: event(
    'api_key',
    ANYONE,
    'An API key got a new secret; the one before ends at `previous_until`.',
    { ...key, previous_prefix: text, previous_until: DateTime },
  ),
  api_key_expired: event('api_key', SYSTEM, 'The time of an API key was over.', {
    ...key,
    expires_at: DateTime,
  }),
  api_key_refused_often: event(
    'api_key',
    SYSTEM,
    'A known key was refused often within a minute, because of any of these. Written at most once an hour a key.',
    { ...key, refusals: count, reasons: Type.Array(reason) },
  ),
  api_key_revoked: event('api_key', ANYONE, 'An API key was revoked; it opens nothing any more.', key),

  sandbox_created: event('sandbox', CALLER, 'A sandbox was made; it has not been started.', {
    ...sandbox,
    slug: text,
    image: text,
    previous_status: Type.Null(),
    status,
    reason,
  }),
  sandbox_start_requested: event('sandbox', CALLER, 'A start was asked for and admitted.', {
    ...run,
    ...transition,
  }),
  sandbox_start_queued: event(
    'sandbox',
    CALLER,
    'A start or restart was asked for while it was stopping. It was admitted, and follows when the run has ended.',
    { ...run, ...transition },
  ),
  sandbox_start_waiting: event(
    'sandbox',
    SYSTEM,
    'A start has waited for a place for a minute. Written once a run. The reason is `insufficient_capacity`, or `no_worker` when no worker that is there can run it.',
    { ...run, ...transition, vcpus: count, memory_mib: count, disk_mib: count },
  ),
  sandbox_started: event(
    'sandbox',
    SYSTEM,
    'The runtime runs it. The status stays what it was when a stop or a deletion came before.',
    { ...run, ...transition, started_at: time },
  ),
  sandbox_stop_requested: event(
    'sandbox',
    ANYONE,
    'A stop was asked for, by a caller or because its time was up. With the reason `restart` a start follows; a stop while it is stopping gives up the start that was to follow.',
    {
      ...run,
      ...transition,
    },
  ),
  sandbox_stopped: event('sandbox', SYSTEM, 'Its run ended in order.', { ...end, ...transition }),
  sandbox_failed: event('sandbox', SYSTEM, 'Its run could not start, crashed or was lost.', {
    ...end,
    ...transition,
  }),
  sandbox_renamed: event('sandbox', CALLER, 'Its name or its slug was changed.', {
    sandbox_id: Uuid,
    before: names,
    after: names,
  }),
  sandbox_relabelled: event('sandbox', CALLER, 'Its labels were replaced.', {
    sandbox_id: Uuid,
    before: labels,
    after: labels,
  }),
  sandbox_destroyed: event('sandbox', CALLER, 'A caller deleted it; it has no status any more.', {
    ...run,
    slug: text,
    previous_status: status,
    status: Type.Null(),
    reason,
  }),
  sandbox_removed: event(
    'sandbox',
    SYSTEM,
    'An ephemeral sandbox ended and went; it has no status any more.',
    {
      ...run,
      slug: text,
      previous_status: status,
      status: Type.Null(),
      reason,
    },
  ),
  sandbox_run_closed: event(
    'sandbox',
    SYSTEM,
    'The run of a sandbox that was deleted while it ran came to its end.',
    {
      ...end,
      previous_status: status,
      status: Type.Null(),
    },
  ),

  volume_created: event(
    'volume',
    ANYONE,
    'A volume was made; each organization begins with its host volume.',
    {
      ...volume,
      kind: Words(['host', 'managed']),
      capacity_gib: Nullable(Type.Integer()),
    },
  ),
  volume_updated: event('volume', CALLER, 'Its cap or its labels were changed.', {
    ...volume,
    before: volumeProperties,
    after: volumeProperties,
  }),
  volume_deletion_scheduled: event(
    'volume',
    CALLER,
    'A volume was deleted; until `purge_at` it can be restored.',
    {
      ...volume,
      purge_at: DateTime,
    },
  ),
  volume_restored: event('volume', CALLER, 'A deletion was taken back in time.', volume),
  volume_purged: event('volume', SYSTEM, 'The time to restore it is over; its data is gone.', volume),

  secrets_resealed: event(
    'secret',
    OPERATOR,
    'Secrets of the organization were sealed again, under another key.',
    {
      count,
      key_id: text,
    },
  ),
  secrets_forgotten: event(
    'secret',
    OPERATOR,
    'Sealed secrets of the organization were deleted by the operator.',
    {
      count,
    },
  ),

  webhook_created: event('webhook', ANYONE, 'A webhook was made.', {
    ...webhook,
    event_types: Type.Array(text),
  }),
  webhook_updated: event(
    'webhook',
    ANYONE,
    'What a webhook sends, where to, or whether at all was changed.',
    {
      webhook_id: Uuid,
      before: webhookProperties,
      after: webhookProperties,
      url_changed: Type.Boolean({ description: 'The path of the URL is not shown; this tells of it.' }),
    },
  ),
  webhook_deleted: event('webhook', ANYONE, 'A webhook was deleted, with its deliveries.', webhook),
  webhook_secret_rotated: event(
    'webhook',
    ANYONE,
    'A webhook got a new secret; the one before signs as well until `previous_until`, or not (null).',
    { ...webhook, previous_until: time },
  ),
  webhook_tested: event(
    'webhook',
    ANYONE,
    'Somebody had this event sent to a webhook, to see it work.',
    webhook,
  ),
  webhook_redelivery_requested: event('webhook', ANYONE, 'An event is sent to a webhook once more.', {
    webhook_id: Uuid,
    delivery_id: Uuid,
    event_id: Uuid,
  }),
  webhook_disabled: event(
    'webhook',
    SYSTEM,
    'Nothing but failures for a long time (`failing`), or the answer 410 (`gone`): nothing is sent until somebody makes the webhook active again.',
    { ...webhook, reason, failing_since: DateTime, failures: count },
  ),

  events_exported: event('event', ANYONE, 'Audit events were exported; written when it began.', {
    format: Words(['ndjson', 'csv']),
    filters: Type.Object({}, { additionalProperties: true, description: 'As they were asked for.' }),
    after_seq: count,
    up_to_seq: count,
  }),
  event_key_rotated: event(
    'event',
    SYSTEM,
    'The log is signed with another key from here on; written when it first was.',
    { key_id: text, previous_key_id: text },
  ),
  event_retention_changed: event(
    'event',
    OPERATOR,
    'How many months events are kept was changed; null is for ever.',
    {
      before_months: Nullable(count),
      after_months: Nullable(count),
    },
  ),
  events_dropped: event(
    'event',
    SYSTEM,
    'Events before a time were dropped, as retention says, of those in the log up to `up_to_seq`.',
    { count, dropped_before: DateTime, up_to_seq: count, oldest_seq_left: count },
  ),
} as const;

export type EventType = keyof typeof CATALOGUE;
export type EventPayload<T extends EventType> = Static<(typeof CATALOGUE)[T]['payload']>;
