import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CATALOGUE } from '../../../src/audit/events/catalogue.js';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { webhookSettings } from '../../../src/settings.js';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { newMember, newToken } from '../../support/members.js';
import { ended } from '../../support/snapshots.js';
import { endedBuild, requestBuild } from '../../support/templates.js';
import { operations } from '../../support/openapi.js';
import { TEXT_ARCHIVE } from '../../support/snapshot-archives.js';
import { startReceiver, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

const webhooks = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });

let service: TestService;
let receiver: Receiver;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ settings: { webhooks } });
  receiver = await startReceiver();
  client = await service.newOrg();
});
afterAll(async () => {
  await service.close();
  await receiver.close();
});

/** Files are data, like the contents of a sandbox: file operations record no events. */
const OF_FILES = [
  'delete_volume_file',
  'write_volume_file',
  'make_volume_directory',
  'copy_volume_file',
  'rename_volume_file',
];

/** The ids of resources that earlier writes made, by kind. */
const made: Record<string, string> = {};

async function keep(name: string, answer: Promise<Answer>): Promise<Answer> {
  const got = await answer;
  made[name] = got.body.id;
  return got;
}

const sandbox = (suffix = '') => `/v1/sandboxes/${made['sandbox']}${suffix}`;
const volume = (suffix = '') => `/v1/volumes/${made['volume']}${suffix}`;
const webhook = (suffix = '') => `/v1/webhooks/${made['webhook']}${suffix}`;
const key = (suffix = '') => `/v1/keys/${made['key']}${suffix}`;
const snapshot = (suffix = '') => `/v1/snapshots/${made['snapshot']}${suffix}`;
const credential = (id = '', suffix = '') => `/v1/registry-credentials${id === '' ? '' : '/'}${id}${suffix}`;
const budget = (id = '') => `/v1/budgets${id === '' ? '' : '/'}${id}`;
const settle = (status: string) => untilStatus(client, made['sandbox']!, status);

const WRITES: Record<string, [event: string, write: () => Promise<Answer>]> = {
  create_sandbox: [
    'sandbox_created',
    () => {
      const secret = { env_var: 'TOKEN', value: 'one', allowed_hosts: [{ type: 'any' }] };
      const network = { secrets: { entries: [secret] } };
      return keep('sandbox', client.post('/v1/sandboxes', smallRequest('one', { network })));
    },
  ],
  modify_sandbox: [
    'sandbox_secrets_changed',
    () => client.request('PUT', sandbox(), { body: { secrets: [{ name: 'TOKEN', value: 'two' }] } }),
  ],
  update_sandbox: ['sandbox_relabelled', () => client.patch(sandbox(), { labels: { team: 'ml' } })],
  start_sandbox: ['sandbox_start_requested', () => client.post(sandbox('/start'), {})],
  stop_sandbox: [
    'sandbox_stop_requested',
    async () => {
      await settle('running');
      return client.post(sandbox('/stop'), {});
    },
  ],
  update_sandbox_by_name: [
    'sandbox_renamed',
    () => client.patch('/v1/sandboxes/by-name/one', { name: 'two' }),
  ],
  start_by_name: [
    'sandbox_start_requested',
    async () => {
      await settle('stopped');
      return client.post('/v1/sandboxes/by-name/two/start', {});
    },
  ],
  stop_by_name: [
    'sandbox_stop_requested',
    async () => {
      await settle('running');
      return client.post('/v1/sandboxes/by-name/two/stop', {});
    },
  ],
  restart_sandbox_by_name: [
    'sandbox_start_requested',
    async () => {
      await settle('stopped');
      return client.post('/v1/sandboxes/by-name/two/restart', {});
    },
  ],
  restart_sandbox: [
    'sandbox_stop_requested',
    async () => {
      await settle('running');
      return client.post(sandbox('/restart'), {});
    },
  ],
  pause_sandbox: [
    'sandbox_pause_requested',
    async () => {
      await settle('running');
      return client.post(sandbox('/pause'), {});
    },
  ],
  resume_sandbox: [
    'sandbox_start_requested',
    async () => {
      await settle('stopped');
      return client.post(sandbox('/resume'), {});
    },
  ],
  pause_by_name: [
    'sandbox_pause_requested',
    async () => {
      await settle('running');
      return client.post('/v1/sandboxes/by-name/two/pause', {});
    },
  ],
  resume_by_name: [
    'sandbox_start_requested',
    async () => {
      await settle('stopped');
      return client.post('/v1/sandboxes/by-name/two/resume', {});
    },
  ],
  delete_by_name: ['sandbox_destroyed', () => client.delete('/v1/sandboxes/by-name/two')],
  delete_sandbox: [
    'sandbox_destroyed',
    async () => {
      await keep('sandbox', client.post('/v1/sandboxes', smallRequest('three')));
      return client.delete(sandbox());
    },
  ],
  create_sandbox_preview: [
    'sandbox_preview_created',
    async () => {
      await keep('sandbox', client.post('/v1/sandboxes', smallRequest('four')));
      return keep('preview', client.post(sandbox('/previews'), { port: 3000 }));
    },
  ],
  revoke_sandbox_preview: [
    'sandbox_preview_revoked',
    () => client.delete(sandbox(`/previews/${made['preview']}`)),
  ],
  create_volume: ['volume_created', () => keep('volume', client.post('/v1/volumes', { name: 'data' }))],
  update_volume: ['volume_updated', () => client.patch(volume(), { labels: { team: 'ml' } })],
  delete_volume: ['volume_deletion_scheduled', () => client.delete(volume())],
  restore_volume: ['volume_restored', () => client.post(volume('/restore'), {})],
  create_key: [
    'api_key_created',
    () => keep('key', client.post('/v1/keys', { name: 'ci', scopes: ['events:read'] })),
  ],
  rotate_key: ['api_key_rotated', () => client.post(key('/rotate'), {})],
  revoke_key: ['api_key_revoked', () => client.delete(key())],
  create_invitation: [
    'member_invited',
    () => keep('invitation', client.post('/v1/invitations', { email: 'grace@example.com', role: 'viewer' })),
  ],
  revoke_invitation: [
    'member_invitation_revoked',
    () => client.delete(`/v1/invitations/${made['invitation']}`),
  ],
  update_member: [
    'member_changed',
    async () => {
      made['member'] = (await newMember(service, client.org.id, 'viewer')).id;
      return client.patch(`/v1/members/${made['member']}`, { role: 'auditor' });
    },
  ],
  remove_member: ['member_removed', () => client.delete(`/v1/members/${made['member']}`)],
  revoke_token: [
    'api_key_revoked',
    async () => {
      const member = await newMember(service, client.org.id, 'viewer');
      const { id } = await newToken(service, client.org.id, member);
      return client.delete(`/v1/tokens/${id}`);
    },
  ],
  create_webhook: [
    'webhook_created',
    () => keep('webhook', client.post('/v1/webhooks', { url: receiver.url })),
  ],
  update_webhook: ['webhook_updated', () => client.patch(webhook(), { event_types: ['volume_created'] })],
  rotate_webhook_secret: ['webhook_secret_rotated', () => client.post(webhook('/rotate-secret'), {})],
  test_webhook: ['webhook_tested', () => client.post(webhook('/test'))],
  redeliver_webhook_event: [
    'webhook_redelivery_requested',
    async () => {
      await client.post('/v1/volumes', { name: 'delivered' });
      const { body } = await until(
        () => client.get(webhook('/deliveries'), { status: 'delivered' }),
        (answer) => answer.body.data.some(({ seq }: { seq: number | null }) => seq !== null),
      );
      const { id } = body.data.find(({ seq }: { seq: number | null }) => seq !== null);
      return client.post(webhook(`/deliveries/${id}/redeliver`));
    },
  ],
  delete_webhook: ['webhook_deleted', () => client.delete(webhook())],
  put_pool: [
    'pool_created',
    () => {
      const { name: _, ...image } = smallRequest('pool');
      return client.request('PUT', '/v1/pools/python', { body: { ...image, size: 1 } });
    },
  ],
  delete_pool: ['pool_deleted', () => client.delete('/v1/pools/python')],
  create_snapshot: [
    'snapshot_requested',
    async () => {
      await keep('sandbox', client.post('/v1/sandboxes', smallRequest('five'), { start: true }));
      await settle('running');
      const request = { kind: 'disk', sandbox_id: made['sandbox'], name: 'prepared' };
      return keep('operation', client.post('/v1/snapshots', request));
    },
  ],
  delete_snapshot: [
    'snapshot_deletion_scheduled',
    async () => {
      made['snapshot'] = (await ended(client, made['operation']!))['result'].id;
      return client.delete(snapshot());
    },
  ],
  restore_snapshot: ['snapshot_restored', () => client.post(snapshot('/restore'), {})],
  delete_snapshot_by_name: [
    'snapshot_deletion_scheduled',
    () => client.delete('/v1/snapshots/by-name/prepared'),
  ],
  create_template: [
    'template_build_requested',
    () => keep('template', requestBuild(client, 'made:1', 'FROM busybox\n')),
  ],
  delete_template: [
    'template_deleted',
    async () => {
      await endedBuild(client, made['template']!);
      return client.delete(`/v1/templates/${made['template']}`);
    },
  ],
  fork_sandbox: [
    'sandbox_fork_requested',
    () => client.post(`/v1/sandboxes/${made['sandbox']}/fork`, { count: 1, start: false }),
  ],
  fork_by_name: [
    'sandbox_fork_requested',
    () => client.post('/v1/sandboxes/by-name/five/fork', { count: 1, start: false }),
  ],
  import_snapshot: [
    'snapshot_imported',
    () => client.request('POST', '/v1/snapshots/import', { query: { name: 'imported' }, body: TEXT_ARCHIVE }),
  ],
  create_budget: [
    'budget_created',
    () => {
      const hours = { name: 'hours', scope: { type: 'organization' }, measure: 'vcpu_hours', limit: '1000' };
      return keep('budget', client.post(budget(), hours));
    },
  ],
  update_budget: ['budget_updated', () => client.patch(budget(made['budget']), { limit: '2000' })],
  delete_budget: ['budget_deleted', () => client.delete(budget(made['budget']))],
  create_registry_credential: [
    'registry_credential_created',
    () => {
      const login = { username: 'robot', password: 'secret' };
      return keep('credential', client.post(credential(), { pattern: 'victim.invalid', ...login }));
    },
  ],
  update_registry_credential: [
    'registry_credential_updated',
    () => client.patch(credential(made['credential']), { username: 'other' }),
  ],
  test_registry_credential: [
    'registry_credential_tested',
    () => client.post(credential(made['credential'], '/test'), {}),
  ],
  delete_registry_credential: [
    'registry_credential_deleted',
    () => client.delete(credential(made['credential'])),
  ],
};

/** Sessions have events of their own. */
const IN_SANDBOX = /^\/v1\/sandboxes\/.*\/(exec|files|sessions|terminal-tickets)\b/;

test('every operation that writes is listed in this file, handles files or enters a sandbox', () => {
  const writing = operations
    .filter(({ method, path }) => method !== 'GET' && !IN_SANDBOX.test(path))
    // Operations that the service does not offer yet only refuse.
    .filter(({ operation }) => Object.keys(operation.responses).some((status) => status.startsWith('2')))
    .map(({ operation }) => operation.operationId);
  // A plan is a POST, and changes nothing. Tools write by the other operations. Only members make tokens:
  // keys/tokens.test.ts.
  const others = [...OF_FILES, 'plan_sandbox_modification', 'call_mcp', 'create_token'];
  expect(writing.toSorted()).toEqual([...Object.keys(WRITES), ...others].toSorted());
});

test.each(Object.entries(WRITES))('%s leaves one event of its key', async (_, [type, write]) => {
  const query = { event_type: type, actor_id: client.keyId, limit: 100 };
  const count = async () => (await client.get('/v1/events', query)).body.data.length;
  const before = await count();
  const answer = await write();
  expect(answer.status, answer.text).toBeLessThan(300);
  // The setup of an operation may record an event of its own.
  expect(await count()).toBe(before + 1);
});

test('the code that writes names every event type of the catalogue', () => {
  const folder = join(PACKAGE_ROOT, 'src');
  const code = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.endsWith(join('events', 'catalogue.ts')))
    .map((file) => readFileSync(join(folder, file), 'utf8'))
    .join('\n');
  // The code composes these names from the way a run ended.
  const named = new Set(['sandbox_stopped', 'sandbox_failed']);
  const written = Object.keys(CATALOGUE).filter((type) => named.has(type) || code.includes(`'${type}'`));
  expect(Object.keys(CATALOGUE).toSorted()).toEqual(written.toSorted());
});

test('every organization gets one event about a changed price book', async () => {
  const { recordPriceBook } = await import('../../../src/usage/record-price-book.js');
  const { parsePriceBook } = await import('../../../src/prices/price-book.js');
  const book = (price: string) =>
    parsePriceBook(JSON.stringify({ currency: 'EUR', prices: { vcpu_hour: price } }), 'the test');
  const { pool } = service.ctx;
  for (const next of [null, book('0.05'), book('0.050'), book('0.06'), null])
    await recordPriceBook(pool, next);
  const { body } = await client.get('/v1/events', { event_type: 'price_book_changed' });
  const changes = body.data.map(({ payload }: any) => payload).toReversed();
  expect(changes.map(({ currency }: any) => currency)).toEqual(['EUR', 'EUR', null]);
  expect(changes.map(({ previous_sha256 }: any) => previous_sha256)).toEqual([
    null,
    ...changes.slice(0, 2).map(({ sha256 }: any) => sha256),
  ]);
});
