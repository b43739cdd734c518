import { Type, type Static } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid, Words } from '../../http/schema.js';
import { STATUSES } from '../../spec/statuses.js';
import { BUDGET_EVENTS } from './budget-events.js';
import { CALLER, closed, event, SYSTEM } from './catalogue-entry.js';
import { FORK_EVENTS } from './fork-events.js';
import { KEY_EVENTS } from './key-events.js';
import { PAUSE_EVENTS } from './pause-events.js';
import { MEMBER_EVENTS } from './member-events.js';
import { POOL_EVENTS } from './pool-events.js';
import { end, run, sandbox, transition } from './run-payloads.js';
import { SNAPSHOT_EVENTS } from './snapshot-events.js';
import { TEMPLATE_EVENTS } from './template-events.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const reason = Type.String({ description: 'The reason, as a code.' });
const time = Nullable(DateTime);
const status = Words([...STATUSES]);
const previewId = Type.Optional(Uuid);
const OPERATOR = ['system'] as const;
const ANYONE = ['api_key', 'user', 'system'] as const;

/**
 * A session never shows its content, and its arguments only if the operator has turned that on: they may hold secrets.
 */
const session = {
  session_id: Uuid,
  ...sandbox,
  kind: Words(['exec', 'terminal', 'files', 'tcp']),
  user: Nullable(text),
  program: Nullable(text),
  argument_count: count,
  command: Type.Optional(Type.Array(text)),
  command_cut: Type.Optional(Type.Boolean()),
};
const preview = {
  preview_id: Uuid,
  ...sandbox,
  port: count,
  label: Nullable(text),
  public: Type.Boolean(),
};
const previewSettings = closed({ public: Type.Boolean(), notice: Type.Boolean() });
const volume = { volume_id: Uuid, name: Nullable(text) };
/** A destination of a sandbox. `domain`: the name by which the sandbox reached it. */
const destination = {
  ...sandbox,
  domain: Nullable(text),
  address: Nullable(text),
  port: Nullable(Type.Integer()),
  protocol: Words(['tcp', 'udp', 'dns', 'http', 'tls']),
  rule: Nullable(Type.Union([count, Words(['default', 'guard'])])),
  first_at: DateTime,
  last_at: DateTime,
};
const refusal = { ...destination, verdict: Words(['denied']), reason: text, count };
const names = closed({ name: text, slug: text });
const labels = closed({ labels: StringMap() });
const volumeProperties = closed({ capacity_gib: Nullable(Type.Integer()), labels: StringMap() });
const quotas = Type.Record(text, Type.Union([Type.Integer(), Type.Boolean(), Type.Null()]));
const registryCredential = { credential_id: Uuid, pattern: text };
const credentialProperties = closed({ username: text, description: Nullable(text) });
/** `destination`: without the path, which may have secrets. */
const webhook = { webhook_id: Uuid, destination: text };
const webhookProperties = closed({
  format: Type.Optional(text),
  destination: text,
  description: Nullable(text),
  event_types: Type.Array(text),
  status: text,
});

export const CATALOGUE = {
  org_created: event('org', OPERATOR, 'An organization was created.', { name: text, slug: text }),
  history_imported: event(
    'org',
    OPERATOR,
    'History was imported. The payload counts the new records of each kind; another system wrote the imported events.',
    { sandboxes: count, runs: count, volumes: count, accruals: count, events: count },
  ),
  quota_changed: event(
    'quota',
    ANYONE,
    'Quotas of the organization were changed. The payload has the changed quotas.',
    {
      before: quotas,
      after: quotas,
    },
  ),
  price_book_changed: event(
    'billing',
    SYSTEM,
    'A service started with another price book than the previous one, or without one (null). The hash is the SHA-256 of its canonical JSON.',
    { sha256: Nullable(text), previous_sha256: Nullable(text), currency: Nullable(text) },
  ),
  ...BUDGET_EVENTS,
  ...MEMBER_EVENTS,
  ...KEY_EVENTS,

  sandbox_created: event(
    'sandbox',
    CALLER,
    'A sandbox was created. A start that the create asked for has an event of its own, with the `source` `cold`. With `warm` the create took a running sandbox of the pool `pool`: its earlier events have the same `sandbox_id`.',
    {
      ...sandbox,
      slug: text,
      image: text,
      previous_status: Type.Null(),
      status,
      reason,
      published_ports: Type.Optional(
        Type.Array(closed({ protocol: text, host_bind: text, host_port: count, guest_port: count })),
      ),
      source: Type.Optional(Words(['warm', 'cold'])),
      pool: Type.Optional(text),
      disk_snapshot_id: Type.Optional(Uuid),
      forked_from: Type.Optional(Uuid),
      run_id: Type.Optional(Uuid),
      started_at: Type.Optional(DateTime),
    },
  ),
  sandbox_start_requested: event(
    'sandbox',
    ANYONE,
    'A start was requested and admitted. With the reason `preview_request`, a request to the preview `preview_id` woke the sandbox. With `session_request` a session did. With `resumes` the run continues the memory of a pause.',
    { ...run, ...transition, preview_id: previewId, resumes: Type.Optional(Type.Boolean()) },
  ),
  sandbox_start_queued: event(
    'sandbox',
    ANYONE,
    'A start or restart was requested and admitted while the sandbox was stopping. It follows the end of the run. The reasons `preview_request` and `session_request` are those of a start.',
    { ...run, ...transition, preview_id: previewId },
  ),
  sandbox_start_waiting: event(
    'sandbox',
    SYSTEM,
    'A start has waited for placement for a minute. Written once for each run. The reason is `insufficient_capacity`, or `no_worker` when no present worker can run the sandbox.',
    { ...run, ...transition, vcpus: count, memory_mib: count, disk_mib: count },
  ),
  sandbox_image_moved: event(
    'sandbox',
    SYSTEM,
    'A sandbox started, and the tag of its image leads to another image than the one of its last start. The disk is `kept` with the previous image, or `replaced` by a new one of the new image (`pull_policy: always`, and each start on Kubernetes).',
    { ...run, previous_digest: Nullable(text), digest: text, disk: text },
  ),
  sandbox_started: event(
    'sandbox',
    SYSTEM,
    'The runtime started the sandbox. A stop or a deletion requested earlier keeps its status. With `resumes` it continued its memory.',
    { ...run, ...transition, started_at: time, resumes: Type.Optional(Type.Boolean()) },
  ),
  sandbox_command_ended: event(
    'sandbox',
    SYSTEM,
    'The command of a sandbox ended, and the sandbox runs on. Written once for each run.',
    {
      ...run,
      status: text,
      exit_code: Nullable(Type.Integer()),
      signal: Nullable(Type.Integer()),
      oom_killed: Nullable(Type.Boolean()),
      ended_at: time,
    },
  ),
  sandbox_stop_requested: event(
    'sandbox',
    ANYONE,
    'A caller or a time limit requested a stop. With the reason `restart` a start follows. A second stop cancels that start.',
    {
      ...run,
      ...transition,
    },
  ),
  ...PAUSE_EVENTS,
  sandbox_stopped: event('sandbox', SYSTEM, 'The run of a sandbox ended in order.', {
    ...end,
    ...transition,
  }),
  sandbox_failed: event('sandbox', SYSTEM, 'The run of a sandbox could not start, crashed or was lost.', {
    ...end,
    ...transition,
  }),
  sandbox_renamed: event('sandbox', CALLER, 'The name or the slug of a sandbox was changed.', {
    sandbox_id: Uuid,
    before: names,
    after: names,
  }),
  sandbox_relabelled: event('sandbox', CALLER, 'The labels of a sandbox were replaced.', {
    sandbox_id: Uuid,
    before: labels,
    after: labels,
  }),
  sandbox_secrets_changed: event(
    'sandbox',
    CALLER,
    'Secrets of a sandbox were added, changed or removed. The event has no values.',
    {
      sandbox_id: Uuid,
      changes: Type.Array(closed({ name: text, change: text, allow_hosts: Type.Array(text) })),
    },
  ),
  sandbox_destroyed: event('sandbox', CALLER, 'A caller deleted a sandbox. Its status becomes null.', {
    ...run,
    slug: text,
    previous_status: status,
    status: Type.Null(),
    reason,
  }),
  sandbox_removed: event(
    'sandbox',
    SYSTEM,
    'The service removed a sandbox: an ephemeral one after its end, or with the reason `pool` one that no create had taken. `fork_failed`: its disk could not be captured. Its status becomes null.',
    {
      ...run,
      slug: text,
      previous_status: status,
      status: Type.Null(),
      reason,
    },
  ),
  sandbox_run_closed: event('sandbox', SYSTEM, 'The run of a deleted sandbox ended.', {
    ...end,
    previous_status: status,
    status: Type.Null(),
  }),

  sandbox_session_opened: event('sandbox', CALLER, 'A caller opened a session in a sandbox.', session),
  sandbox_session_end_requested: event(
    'sandbox',
    CALLER,
    'A caller asked for the end of an open session, which may be that of another caller. The session then ends with the reason `session_ended`.',
    session,
  ),
  sandbox_session_ended: event(
    'sandbox',
    CALLER,
    'A session in a sandbox ended. The reason `cut_off` means that its process was lost; the counts are null then.',
    {
      ...session,
      reason,
      exit_code: Nullable(Type.Integer()),
      oom_killed: Type.Optional(Nullable(Type.Boolean())),
      duration_ms: count,
      bytes_in: Nullable(count),
      bytes_out: Nullable(count),
      file_writes: Nullable(count),
    },
  ),

  sandbox_preview_created: event(
    'sandbox',
    CALLER,
    'A caller opened a port of a sandbox to browsers and programs. `public`: to everybody.',
    { ...preview, expires_at: DateTime },
  ),
  sandbox_preview_revoked: event(
    'sandbox',
    CALLER,
    'A caller revoked a preview. The end of a preview with its time, its key or its sandbox has no such event.',
    preview,
  ),
  preview_settings_changed: event(
    'org',
    OPERATOR,
    'The settings of previews were changed: whether they may be public, and whether browsers first see whose page they open.',
    { before: previewSettings, after: previewSettings },
  ),

  ...POOL_EVENTS,
  ...SNAPSHOT_EVENTS,
  ...TEMPLATE_EVENTS,
  ...FORK_EVENTS,

  network_destination_used: event(
    'network',
    SYSTEM,
    'A sandbox used a destination. Written for each minute and destination, where the record of the network is on. `secrets` names the secrets that were put into its requests. `rule` is a position in the policy, from 0 on.',
    {
      ...destination,
      verdict: Words(['allowed']),
      connections: count,
      sent_bytes: count,
      received_bytes: count,
      secrets: Type.Array(text),
    },
  ),
  network_destination_denied: event(
    'network',
    SYSTEM,
    'A sandbox was refused a name, a connection or a request. Written at once, where the record of the network is on. Further equal refusals of the minute follow together in one event.',
    { ...refusal, kind: Words(['name', 'connection', 'request']) },
  ),
  network_secret_withheld: event(
    'network',
    SYSTEM,
    'A sandbox sent the placeholder of a secret to a place that its entry does not allow. Always written, at once. Further equal ones of the minute follow together in one event. `terminates`: the entry ends the sandbox for it.',
    { ...refusal, secret: text, terminates: Type.Boolean() },
  ),
  network_record_cut: event(
    'network',
    SYSTEM,
    'The record of a minute lacks destinations or refusals of a sandbox, because of a limit. These are their sums.',
    { ...sandbox, connections: count, sent_bytes: count, received_bytes: count, refusals: count },
  ),
  network_record_changed: event(
    'network',
    OPERATOR,
    'The record of the network of all sandboxes of the organization was turned on or off.',
    { before: Type.Boolean(), after: Type.Boolean() },
  ),

  volume_created: event(
    'volume',
    ANYONE,
    'A volume was created. Every organization has a host volume from its creation. A fork created it if it has `copied_from`: the volume whose files it got.',
    {
      ...volume,
      kind: Words(['host', 'managed']),
      capacity_gib: Nullable(Type.Integer()),
      copied_from: Type.Optional(Uuid),
      fork_id: Type.Optional(Uuid),
    },
  ),
  volume_updated: event('volume', CALLER, 'The capacity or the labels of a volume were changed.', {
    ...volume,
    before: volumeProperties,
    after: volumeProperties,
  }),
  volume_deletion_scheduled: event(
    'volume',
    CALLER,
    'A volume was deleted. It can be restored until `purge_at`.',
    {
      ...volume,
      purge_at: DateTime,
    },
  ),
  volume_restored: event('volume', CALLER, 'A deleted volume was restored.', volume),
  volume_purged: event(
    'volume',
    SYSTEM,
    'The data of a deleted volume was purged. It cannot be restored.',
    volume,
  ),

  secrets_resealed: event(
    'secret',
    OPERATOR,
    'Secrets of the organization were sealed again under another key.',
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

  registry_credential_created: event('secret', ANYONE, 'A registry credential was stored.', {
    ...registryCredential,
    username: text,
    description: Nullable(text),
  }),
  registry_credential_updated: event('secret', ANYONE, 'A registry credential was changed.', {
    ...registryCredential,
    before: credentialProperties,
    after: credentialProperties,
    password_changed: Type.Boolean(),
  }),
  registry_credential_deleted: event('secret', ANYONE, 'A registry credential was deleted.', {
    ...registryCredential,
    username: text,
    description: Nullable(text),
  }),
  registry_credential_tested: event(
    'secret',
    ANYONE,
    'A caller logged in at a registry with a stored credential as a test.',
    { ...registryCredential, reference: Nullable(text), accepted: Type.Boolean() },
  ),

  webhook_created: event('webhook', ANYONE, 'A webhook was created.', {
    ...webhook,
    format: Type.Optional(text),
    event_types: Type.Array(text),
  }),
  webhook_updated: event(
    'webhook',
    ANYONE,
    'The destination, the event types, the description, the format or the status of a webhook was changed.',
    {
      webhook_id: Uuid,
      before: webhookProperties,
      after: webhookProperties,
      url_changed: Type.Boolean({
        description: 'Whether the URL changed, including its path, which is not shown.',
      }),
    },
  ),
  webhook_deleted: event('webhook', ANYONE, 'A webhook and its deliveries were deleted.', webhook),
  webhook_secret_rotated: event(
    'webhook',
    ANYONE,
    'A webhook got a new secret. The previous secret also signs until `previous_until`, or not at all (null).',
    { ...webhook, previous_until: time },
  ),
  webhook_tested: event('webhook', ANYONE, 'A caller sent this event to a webhook as a test.', webhook),
  webhook_redelivery_requested: event('webhook', ANYONE, 'A caller requested another delivery of an event.', {
    webhook_id: Uuid,
    delivery_id: Uuid,
    event_id: Uuid,
  }),
  webhook_disabled: event(
    'webhook',
    SYSTEM,
    'A webhook failed for a long time (`failing`) or answered 410 (`gone`). It gets no deliveries until a caller activates it again.',
    { ...webhook, reason, failing_since: DateTime, failures: count },
  ),

  events_exported: event('event', ANYONE, 'An export of audit events began.', {
    format: Words(['ndjson', 'csv', 'ocsf']),
    filters: Type.Object({}, { additionalProperties: true, description: 'The filters as requested.' }),
    after_seq: count,
    up_to_seq: count,
  }),
  event_key_rotated: event('event', SYSTEM, 'The key that signs the event log was replaced.', {
    key_id: text,
    previous_key_id: text,
  }),
  event_retention_changed: event('event', OPERATOR, 'The retention of events was changed. Null: for ever.', {
    before_months: Nullable(count),
    after_months: Nullable(count),
  }),
  event_command_lines_changed: event(
    'event',
    OPERATOR,
    'Full command lines in the events of sessions were turned on or off.',
    { before: Type.Boolean(), after: Type.Boolean() },
  ),
  events_dropped: event(
    'event',
    SYSTEM,
    'Retention dropped events before a time, of the entries of the log up to `up_to_seq`.',
    { count, dropped_before: DateTime, up_to_seq: count, oldest_seq_left: count },
  ),
} as const;

export type EventType = keyof typeof CATALOGUE;
export type EventPayload<T extends EventType> = Static<(typeof CATALOGUE)[T]['payload']>;
