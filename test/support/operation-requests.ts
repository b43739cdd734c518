import { operator } from '../../src/audit/events/actor.js';
import { newId } from '../../src/lib/uuid.js';
import { addMember } from '../../src/members/add.js';
import { EMPTY_CONFIG } from '../../src/spec/template-config.js';
import { newToken } from './members.js';
import { makeBudget } from './budgets.js';
import type { Answer } from './answer.js';
import type { Client } from './client.js';
import type { TestService } from './service.js';
import { fullRequest, smallRequest } from './sandbox-requests.js';
import { TEXT_ARCHIVE } from './snapshot-archives.js';

/** A request of an operation. */
export interface Classified {
  path: string;
  query?: Record<string, string>;
  body?: unknown;
  headers?: Record<string, string>;
  /** The code and message for an unknown resource, where they are not those of sandboxes. */
  absent?: [code: string, message: string];
  /** Its body names a resource of the organization. */
  refers?: true;
  /** It is for the organization as a whole: a key that is narrowed to labels is refused. */
  isWhole?: true;
  /** It creates a resource of the caller under a name that others may have too. */
  makesOwn?: true;
}

const NO_MEMBER: Classified['absent'] = ['member_not_found', 'there is no such member'];
const NO_TOKEN: Classified['absent'] = ['token_not_found', 'there is no such personal token'];
const NO_INVITATION: Classified['absent'] = ['invitation_not_found', 'there is no such invitation'];
const NO_KEY: Classified['absent'] = ['key_not_found', 'there is no such key'];
/** An open session in the sandbox of each fixture. No process serves it. */
const SESSION_ID = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d77';
const NO_BUDGET: Classified['absent'] = ['budget_not_found', 'there is no such budget'];
const UNKNOWN_ID = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';
const NO_POOL: Classified['absent'] = ['pool_not_found', 'there is no such pool'];
const NO_SNAPSHOT: Classified['absent'] = ['snapshot_not_found', 'there is no such snapshot'];
const NO_TEMPLATE: Classified['absent'] = ['template_not_found', 'there is no such template'];
const NO_VOLUME: Classified['absent'] = ['volume_not_found', 'volume not found'];

// On the routes of files, clients read every other code as an unknown sandbox.
const inVolume =
  (suffix: string, body?: unknown) =>
  ({ volume }: Fixture) => ({
    path: `/v1/volumes/${volume.id}/files${suffix}`,
    absent: NO_VOLUME,
    ...(body === undefined ? { headers: { 'x-msb-file-path': 'Lw' } } : { body }),
  });

const inSandbox = (suffix: string, body?: unknown): Record<string, (victim: Fixture) => Classified> =>
  Object.fromEntries(
    [
      ['', ({ sandbox }: Fixture) => sandbox.id] as const,
      ['_by_name', ({ sandbox }: Fixture) => `by-name/${sandbox.name}`] as const,
    ].map(([by, addressOf]) => [
      by,
      (victim: Fixture) => ({
        path: `/v1/sandboxes/${addressOf(victim)}${suffix}`,
        ...(body === undefined ? { headers: { 'x-msb-file-path': 'L3RtcA' } } : { body }),
      }),
    ]),
  );

/** The operations that have an address by id and one by name. */
const IN_SANDBOXES: Record<string, Record<string, (victim: Fixture) => Classified>> = {
  exec_sandbox: inSandbox('/exec', { cmd: 'true' }),
  list_sandbox_files: inSandbox('/files'),
  delete_sandbox_file: inSandbox('/files'),
  stat_sandbox_file: inSandbox('/files/stat'),
  sandbox_file_exists: inSandbox('/files/exists'),
  read_sandbox_file: inSandbox('/files/content'),
  write_sandbox_file: inSandbox('/files/content'),
  make_sandbox_directory: inSandbox('/files/mkdir', { path: 'taken-over' }),
  copy_sandbox_file: inSandbox('/files/copy', { from: 'a', to: 'b' }),
  create_sandbox_terminal_ticket: inSandbox('/terminal-tickets', {}),
  rename_sandbox_file: inSandbox('/files/rename', { from: 'a', to: 'b' }),
};

/**
 * A request of every operation of openapi.json to resources of the given organization. The tests of isolation and
 * authorization fail for a route that is missing here.
 */
export const OPERATIONS: Record<string, (victim: Fixture) => Classified> = {
  call_mcp: () => ({ path: '/mcp', body: { jsonrpc: '2.0', id: 1, method: 'resources/list' } }),
  list_sandboxes: () => ({ path: '/v1/sandboxes' }),
  summarize_sandboxes: () => ({ path: '/v1/sandboxes/summary', isWhole: true }),
  create_sandbox: () => ({ path: '/v1/sandboxes', body: smallRequest('intruder') }),
  get_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}` }),
  delete_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}` }),
  update_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}`, body: { name: 'taken-over' } }),
  start_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/start`, body: {} }),
  stop_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/stop`, body: {} }),
  restart_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/restart`, body: {} }),
  pause_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/pause`, body: {} }),
  pause_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/pause`, body: {} }),
  resume_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/resume`, body: {} }),
  resume_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/resume`, body: {} }),
  get_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}` }),
  delete_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}` }),
  update_sandbox_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}`,
    body: { slug: 'taken-over' },
  }),
  start_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/start`, body: {} }),
  stop_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/stop`, body: {} }),
  restart_sandbox_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}/restart`,
    body: {},
  }),
  plan_sandbox_modification: ({ sandbox }) => ({
    path: `/v1/sandboxes/${sandbox.id}/modifications/plan`,
    body: { secrets_remove: ['TOKEN'] },
  }),
  modify_sandbox: ({ sandbox }) => ({
    path: `/v1/sandboxes/${sandbox.id}`,
    body: { secrets: [{ name: 'TOKEN', value: 'canary' }] },
  }),
  create_snapshot: ({ sandbox }) => ({
    path: '/v1/snapshots',
    body: { kind: 'disk', sandbox_id: sandbox.id, name: 'intruder' },
    refers: true,
  }),
  list_snapshots: () => ({ path: '/v1/snapshots' }),
  get_snapshot: (victim) => ({ path: `/v1/snapshots/${snapshotOf(victim).id}`, absent: NO_SNAPSHOT }),
  delete_snapshot: (victim) => ({ path: `/v1/snapshots/${snapshotOf(victim).id}`, absent: NO_SNAPSHOT }),
  get_snapshot_by_name: (victim) => ({
    path: `/v1/snapshots/by-name/${snapshotOf(victim).name}`,
    absent: NO_SNAPSHOT,
  }),
  delete_snapshot_by_name: (victim) => ({
    path: `/v1/snapshots/by-name/${snapshotOf(victim).name}`,
    absent: NO_SNAPSHOT,
  }),
  restore_snapshot: (victim) => ({
    path: `/v1/snapshots/${snapshotOf(victim).id}/restore`,
    body: {},
    absent: NO_SNAPSHOT,
  }),
  create_template: () => ({ path: '/v1/templates', query: { tag: 'intruder:1' }, body: 'FROM intruder\n' }),
  list_templates: () => ({ path: '/v1/templates' }),
  get_template: (victim) => ({ path: templatePath(victim), absent: NO_TEMPLATE }),
  follow_template_log: (victim) => ({ path: `${templatePath(victim)}/log`, absent: NO_TEMPLATE }),
  delete_template: (victim) => ({ path: templatePath(victim), absent: NO_TEMPLATE }),
  export_snapshot: (victim) => ({
    path: `/v1/snapshots/${snapshotOf(victim).id}/export`,
    absent: NO_SNAPSHOT,
  }),
  export_snapshot_by_name: (victim) => ({
    path: `/v1/snapshots/by-name/${snapshotOf(victim).name}/export`,
    absent: NO_SNAPSHOT,
  }),
  import_snapshot: () => ({
    path: '/v1/snapshots/import',
    query: { name: 'intruder' },
    body: TEXT_ARCHIVE,
  }),
  list_snapshot_candidates: () => ({ path: '/v1/sandboxes/snapshot-candidates' }),
  list_snapshot_operations: () => ({ path: '/v1/snapshot-operations' }),
  get_snapshot_operation: (victim) => ({
    path: `/v1/snapshot-operations/${snapshotOf(victim).id}`,
    absent: ['snapshot_operation_not_found', 'there is no such operation on snapshots'],
  }),
  fork_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/fork`, body: { count: 1 } }),
  fork_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/fork`, body: { count: 1 } }),
  list_fork_operations: () => ({ path: '/v1/fork-operations' }),
  get_fork_operation: ({ fork }) => ({
    path: `/v1/fork-operations/${fork?.id ?? UNKNOWN_ID}`,
    absent: ['fork_operation_not_found', 'there is no such fork operation'],
  }),
  list_volumes: () => ({ path: '/v1/volumes' }),
  create_volume: () => ({ path: '/v1/volumes', body: { name: 'intruder' } }),
  get_volume: ({ volume }) => ({ path: `/v1/volumes/${volume.id}` }),
  get_default_volume: () => ({ path: '/v1/volumes/default' }),
  update_volume: ({ volume }) => ({ path: `/v1/volumes/${volume.id}`, body: { capacity_gib: 1 } }),
  restore_volume: ({ volume }) => ({ path: `/v1/volumes/${volume.id}/restore`, body: {} }),
  list_volume_files: inVolume(''),
  delete_volume_file: inVolume(''),
  stat_volume_file: inVolume('/stat'),
  volume_file_exists: inVolume('/exists'),
  read_volume_file: inVolume('/content'),
  write_volume_file: inVolume('/content'),
  make_volume_directory: inVolume('/mkdir', { path: 'taken-over' }),
  copy_volume_file: inVolume('/copy', { from: 'a', to: 'b' }),
  rename_volume_file: inVolume('/rename', { from: 'a', to: 'b' }),
  follow_sandbox_logs: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/logs` }),
  follow_sandbox_logs_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/logs` }),
  list_denied_connections: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/network/denied` }),
  list_denied_connections_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}/network/denied`,
  }),
  get_sandbox_metrics: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/metrics` }),
  get_sandbox_metrics_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/metrics` }),
  stream_sandbox_metrics: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/metrics/stream` }),
  stream_sandbox_metrics_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}/metrics/stream`,
  }),
  ...Object.fromEntries(
    Object.entries(IN_SANDBOXES).flatMap(([id, requests]) =>
      Object.entries(requests).map(([by, request]) => [id + by, request]),
    ),
  ),
  ...Object.fromEntries(
    [
      ['', (victim: Fixture) => victim.sandbox.id] as const,
      ['_by_name', (victim: Fixture) => `by-name/${victim.sandbox.name}`] as const,
    ].flatMap(([by, addressOf]) => [
      [
        `list_sandbox_sessions${by}`,
        (victim: Fixture) => ({ path: `/v1/sandboxes/${addressOf(victim)}/sessions` }),
      ],
      [
        `end_sandbox_session${by}`,
        (victim: Fixture) => ({ path: `/v1/sandboxes/${addressOf(victim)}/sessions/${SESSION_ID}` }),
      ],
    ]),
  ),
  create_sandbox_preview: ({ sandbox }) => ({
    path: `/v1/sandboxes/${sandbox.id}/previews`,
    body: { port: 8080, label: 'intruder' },
  }),
  list_sandbox_previews: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/previews` }),
  get_sandbox_preview: ({ sandbox, preview }) => ({
    path: `/v1/sandboxes/${sandbox.id}/previews/${preview?.id ?? UNKNOWN_ID}`,
  }),
  revoke_sandbox_preview: ({ sandbox, preview }) => ({
    path: `/v1/sandboxes/${sandbox.id}/previews/${preview?.id ?? UNKNOWN_ID}`,
  }),
  open_sandbox_terminal: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/terminal` }),
  connect_sandbox_port: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/ports/8000/connect` }),
  connect_sandbox_port_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}/ports/8000/connect`,
  }),
  open_sandbox_agent: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/agent` }),
  delete_volume: ({ volume }) => ({ path: `/v1/volumes/${volume.id}` }),
  list_pools: () => ({ path: '/v1/pools', isWhole: true }),
  // A pool of its own, so that the other requests find none in any order.
  put_pool: () => ({
    path: '/v1/pools/kept',
    body: { ...smallRequest(''), name: undefined, size: 0 },
    isWhole: true,
    makesOwn: true,
  }),
  get_pool: () => ({ path: '/v1/pools/warm', absent: NO_POOL, isWhole: true }),
  delete_pool: () => ({ path: '/v1/pools/warm', absent: NO_POOL, isWhole: true }),
  get_org: () => ({ path: '/v1/me/org' }),
  list_members: () => ({ path: '/v1/members' }),
  update_member: (victim) => ({
    path: `/v1/members/${victim.member?.id ?? UNKNOWN_ID}`,
    body: { role: 'viewer' },
    absent: NO_MEMBER,
  }),
  remove_member: (victim) => ({ path: `/v1/members/${victim.member?.id ?? UNKNOWN_ID}`, absent: NO_MEMBER }),
  list_invitations: () => ({ path: '/v1/invitations' }),
  create_invitation: () => ({
    path: '/v1/invitations',
    body: { email: 'intruder@example.com', role: 'viewer' },
  }),
  revoke_invitation: (victim) => ({
    path: `/v1/invitations/${victim.invitation?.id ?? UNKNOWN_ID}`,
    absent: NO_INVITATION,
  }),
  list_tokens: () => ({ path: '/v1/tokens' }),
  create_token: () => ({ path: '/v1/tokens', body: { name: 'intruder' } }),
  revoke_token: (victim) => ({ path: `/v1/tokens/${victim.token?.id ?? UNKNOWN_ID}`, absent: NO_TOKEN }),
  get_quotas: () => ({ path: '/v1/quotas' }),
  list_events: () => ({ path: '/v1/events' }),
  get_event: ({ event }) => ({ path: `/v1/events/${event.id}` }),
  export_events: () => ({ path: '/v1/events/export' }),
  stream_events: () => ({ path: '/v1/events/stream' }),
  list_registry_credentials: () => ({ path: '/v1/registry-credentials' }),
  create_registry_credential: () => ({
    path: '/v1/registry-credentials',
    body: { pattern: 'intruder.example', username: 'intruder', password: 'intruder' },
  }),
  get_registry_credential: (victim) => ({ path: credentialPath(victim) }),
  update_registry_credential: (victim) => ({
    path: credentialPath(victim),
    body: { username: 'intruder' },
  }),
  delete_registry_credential: (victim) => ({ path: credentialPath(victim) }),
  test_registry_credential: (victim) => ({
    path: `${credentialPath(victim)}/test`,
    body: {},
  }),
  list_budgets: () => ({ path: '/v1/budgets' }),
  create_budget: () => ({
    path: '/v1/budgets',
    body: { name: 'intruder', scope: { type: 'organization' }, measure: 'vcpu_hours', limit: '1000000' },
  }),
  get_budget: (victim) => ({ path: budgetPath(victim), absent: NO_BUDGET }),
  update_budget: (victim) => ({ path: budgetPath(victim), body: { limit: '1' }, absent: NO_BUDGET }),
  delete_budget: (victim) => ({ path: budgetPath(victim), absent: NO_BUDGET }),
  list_webhooks: () => ({ path: '/v1/webhooks' }),
  create_webhook: () => ({ path: '/v1/webhooks', body: { url: 'https://example.com/intruder' } }),
  get_webhook: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}` }),
  update_webhook: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}`, body: { status: 'active' } }),
  delete_webhook: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}` }),
  rotate_webhook_secret: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}/rotate-secret`, body: {} }),
  test_webhook: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}/test` }),
  list_webhook_deliveries: ({ webhook }) => ({ path: `/v1/webhooks/${webhook.id}/deliveries` }),
  redeliver_webhook_event: ({ webhook }) => ({
    path: `/v1/webhooks/${webhook.id}/deliveries/${webhook.delivery}/redeliver`,
  }),
  get_usage: () => ({ path: '/v1/billing/usage' }),
  get_sandbox_breakdown: () => ({ path: '/v1/billing/usage/sandbox' }),
  get_label_breakdown: () => ({ path: '/v1/billing/usage/labels', query: { key: 'team' } }),
  get_storage_breakdown: () => ({ path: '/v1/billing/usage/storage' }),
  list_keys: () => ({ path: '/v1/keys' }),
  create_key: () => ({ path: '/v1/keys', body: { name: 'intruder', scopes: ['sandboxes:read'] } }),
  get_key: ({ key }) => ({ path: `/v1/keys/${key.id}`, absent: NO_KEY }),
  revoke_key: ({ key }) => ({ path: `/v1/keys/${key.id}`, absent: NO_KEY }),
  rotate_key: ({ key }) => ({ path: `/v1/keys/${key.id}/rotate`, body: {}, absent: NO_KEY }),
};

/** The resources of an organization that others must not reach. */
export interface Fixture {
  client: Client;
  sandbox: { id: string; name: string };
  /** Undefined: the fixture is of a release without previews. */
  preview?: { id: string };
  /** Undefined: the fixture is of a release without snapshots. */
  snapshot?: { id: string; name: string };
  /** Undefined: the fixture is of a release without templates. */
  template?: { id: string };
  /** Undefined: the fixture is of a release without forks. */
  fork?: { id: string };
  volume: { id: string };
  event: { id: string };
  key: { id: string };
  /** Undefined: the fixture is of a release without them. */
  credential?: { id: string };
  /** Undefined: the fixture is of a release without them. */
  member?: { id: string };
  invitation?: { id: string };
  /** A personal token of the member. */
  token?: { id: string };
  budget?: { id: string };
  /** The webhook is disabled, so nothing changes by itself. */
  webhook: { id: string; delivery: string };
}

function credentialPath({ credential }: Fixture): string {
  return `/v1/registry-credentials/${credential?.id ?? SESSION_ID}`;
}

function templatePath({ template }: Fixture): string {
  return `/v1/templates/${template?.id ?? UNKNOWN_ID}`;
}

function budgetPath({ budget }: Fixture): string {
  return `/v1/budgets/${budget?.id ?? UNKNOWN_ID}`;
}

function snapshotOf({ snapshot: made }: Fixture): { id: string; name: string } {
  return made ?? { id: UNKNOWN_ID, name: 'victim' };
}

/** Makes an organization with one resource of each kind; the sandbox runs. */
export async function makeFixture(service: TestService): Promise<Fixture> {
  const client = await service.newOrg();
  await succeed(client.post('/v1/volumes', { name: 'mounted' }));
  // Slugs of sandboxes are unique among all organizations, and a test may make several fixtures.
  const request = { ...fullRequest('victim', 'mounted'), slug: `victim-of-${client.org.slug}` };
  const sandbox = await succeed(client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' }));
  const volume = await succeed(client.post('/v1/volumes', { name: 'victim-data' }));
  await service.ctx.pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, $2, now() - interval '1 hour', now(), 7)`,
    [client.org.id, volume.id],
  );
  const { id } = await succeed(
    client.post('/v1/webhooks', { url: 'https://victim.invalid/', event_types: ['webhook_disabled'] }),
  );
  await succeed(client.patch(`/v1/webhooks/${id}`, { status: 'disabled' }));
  const { id: delivery } = await succeed(client.post(`/v1/webhooks/${id}/test`));
  const details = { session_id: SESSION_ID, sandbox_id: sandbox.id, name: sandbox.name, kind: 'exec' };
  await service.ctx.pool.query(
    `insert into sandbox_sessions (org_id, id, sandbox_id, actor, details, opened_at, seen_at)
     values ($1, $2, $3, $4, $5, now(), now() + interval '1 day')`,
    [
      client.org.id,
      SESSION_ID,
      sandbox.id,
      JSON.stringify(operator('victim')),
      JSON.stringify({ ...details, user: null, program: 'victim', argument_count: 0 }),
    ],
  );
  const preview = await succeed(client.post(`/v1/sandboxes/${sandbox.id}/previews`, { port: 8080 }));
  for (const name of ['warm', 'kept']) {
    const body = { image: { type: 'oci', reference: 'victim' }, size: 0 };
    await succeed(client.request('PUT', `/v1/pools/${name}`, { body }));
  }
  const credential = await succeed(
    client.post('/v1/registry-credentials', {
      pattern: 'victim.invalid',
      username: 'victim',
      password: 'victim',
    }),
  );
  const person = { email: 'victim@example.com', role: 'developer', displayName: null } as const;
  const member = await addMember(service.ctx.pool, client.org.id, person, operator('victim'));
  const invited = { email: 'victim-to-be@example.com', role: 'developer' };
  const invitation = await succeed(client.post('/v1/invitations', invited));
  const token = await newToken(service, client.org.id, member);
  const budget = await makeBudget(client, { name: 'victim' });
  const made = { id: newId(), name: 'victim' };
  await service.ctx.pool.query(
    `insert into snapshots (org_id, id, name, labels, status, replaces, record_integrity, sandbox_id, sandbox_name, image,
       runtime, worker_id, actor, size_bytes, digest, content_digest, created_at, updated_at, completed_at)
     values ($1, $2, $3, '{}', 'ready', false, false, $4, 'victim', 'victim', 'simulated', gen_random_uuid(), $5, 7,
       'sha256:00', 'sha256:00', now(), now(), now())`,
    [client.org.id, made.id, made.name, sandbox.id, JSON.stringify(operator('victim'))],
  );
  const template = { id: newId() };
  await service.ctx.pool.query(
    `insert into templates (org_id, id, name, tag, labels, status, dockerfile, build_args, sandbox, uses_cache, timeout_secs,
       runtime, worker_id, actor, steps, snapshot_id, config, image_config, created_at, updated_at, completed_at)
     values ($1, $2, 'victim', 'latest', '{}', 'succeeded', 'FROM victim', '{}', '{}', true, 60, 'simulated',
       gen_random_uuid(), $3, 0, $4, $5, $6, now(), now(), now())`,
    [
      client.org.id,
      template.id,
      JSON.stringify(operator('victim')),
      made.id,
      JSON.stringify(EMPTY_CONFIG),
      JSON.stringify({ env: [], user: '', workdir: '' }),
    ],
  );
  const fork = { id: newId() };
  await service.ctx.pool.query(
    `insert into snapshots (org_id, id, purpose, fork_count, name, labels, status, replaces, record_integrity, sandbox_id,
       sandbox_name, image, runtime, worker_id, actor, size_bytes, digest, content_digest, created_at, updated_at,
       completed_at, purge_at, removed_at)
     values ($1, $2, 'fork', 1, 'victim', '{}', 'deleting', false, false, $3, 'victim', 'victim', 'simulated',
       gen_random_uuid(), $4, 7, 'sha256:00', 'sha256:00', now(), now(), now(), now(), now())`,
    [client.org.id, fork.id, sandbox.id, JSON.stringify(operator('victim'))],
  );
  const event = (await succeed(client.get('/v1/events'))).data[0];
  return {
    client,
    sandbox,
    preview,
    snapshot: made,
    template,
    fork,
    volume,
    event,
    credential,
    member: { id: member.id },
    invitation,
    token,
    budget,
    key: { id: client.keyId },
    webhook: { id, delivery },
  };
}

/** The body of an answer. A refusal is an error that quotes it, so that no test goes on without its subject. */
async function succeed(asked: Promise<Answer>): Promise<Answer['body']> {
  const { status, text, body } = await asked;
  if (status >= 300) throw new Error(`cannot make the fixture: the service answered ${status} ${text}`);
  return body;
}
