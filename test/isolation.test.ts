import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from './support/client.js';
import { operations } from './support/openapi.js';
import { startTestService, type TestService } from './support/service.js';
import { fullRequest, smallRequest } from './support/specs.js';

interface Classified {
  path: string;
  query?: Record<string, string>;
  body?: unknown;
  headers?: Record<string, string>;
}

const inVolume =
  (suffix: string, body?: unknown) =>
  ({ volume }: Fixture) => ({
    path: `/v1/volumes/${volume.id}/files${suffix}`,
    ...(body === undefined ? { headers: { 'x-msb-file-path': 'Lw' } } : { body }),
  });

/**
 * Every operation of openapi.json, with what makes it touch something of the organization whose ids it is given.
 * A route that is added and not classified here fails the first test.
 */
const OPERATIONS: Record<string, (victim: Fixture) => Classified> = {
  list_sandboxes: () => ({ path: '/v1/sandboxes' }),
  create_sandbox: () => ({ path: '/v1/sandboxes', body: smallRequest('intruder') }),
  get_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}` }),
  delete_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}` }),
  update_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}`, body: { name: 'taken-over' } }),
  start_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/start`, body: {} }),
  stop_sandbox: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/stop`, body: {} }),
  get_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}` }),
  delete_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}` }),
  update_by_name: ({ sandbox }) => ({
    path: `/v1/sandboxes/by-name/${sandbox.name}`,
    body: { slug: 'taken-over' },
  }),
  start_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/start`, body: {} }),
  stop_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/stop`, body: {} }),
  list_volumes: () => ({ path: '/v1/volumes' }),
  create_volume: () => ({ path: '/v1/volumes', body: { name: 'intruder' } }),
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
  follow_logs: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/logs` }),
  follow_logs_by_name: ({ sandbox }) => ({ path: `/v1/sandboxes/by-name/${sandbox.name}/logs` }),
  open_agent: ({ sandbox }) => ({ path: `/v1/sandboxes/${sandbox.id}/agent` }),
  delete_volume: ({ volume }) => ({ path: `/v1/volumes/${volume.id}` }),
  get_org: () => ({ path: '/v1/me/org' }),
  list_members: () => ({ path: '/v1/members' }),
  get_quotas: () => ({ path: '/v1/quotas' }),
  list_events: () => ({ path: '/v1/events' }),
  get_event: ({ event }) => ({ path: `/v1/events/${event.id}` }),
  get_usage: () => ({ path: '/v1/billing/usage' }),
  get_sandbox_breakdown: () => ({ path: '/v1/billing/usage/sandbox' }),
  get_label_breakdown: () => ({ path: '/v1/billing/usage/labels', query: { key: 'team' } }),
  get_storage_breakdown: () => ({ path: '/v1/billing/usage/storage' }),
};

interface Fixture {
  client: Client;
  sandbox: { id: string; name: string };
  volume: { id: string };
  event: { id: string };
}

let service: TestService;
let victim: Fixture;
let intruder: Client;

beforeAll(async () => {
  service = await startTestService();
  const client = await service.newOrg();
  intruder = await service.newOrg();
  await client.post('/v1/volumes', { name: 'mounted' });
  const { body: sandbox } = await client.post('/v1/sandboxes', fullRequest('victim', 'mounted'), {
    start: true,
    wait_for: 'running',
  });
  const { body: volume } = await client.post('/v1/volumes', { name: 'victim-data' });
  await service.ctx.pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, $2, now() - interval '1 hour', now(), 7)`,
    [client.org.id, volume.id],
  );
  const event = (await client.get('/v1/events')).body.data[0];
  victim = { client, sandbox, volume, event };
});
afterAll(() => service.close());

const snapshot = async () => {
  const tables = [
    'sandboxes',
    'sandbox_labels',
    'label_periods',
    'usage_days',
    'volumes',
    'events',
    'accruals',
    'api_keys',
    'runs',
    'quotas',
    'org_members',
    'idempotency_keys',
  ];
  const rows = await Promise.all(
    tables.map((table) =>
      service.ctx.pool.query(
        `select to_jsonb(t) - 'seen_at' as row from ${table} t where org_id = $1 order by 1`,
        [victim.client.org.id],
      ),
    ),
  );
  return rows.map((result) => result.rows);
};

test('every operation is classified', () => {
  expect(operations.map(({ operation }) => operation.operationId).toSorted()).toEqual(
    Object.keys(OPERATIONS).toSorted(),
  );
});

test.each(operations.map(({ method, path, operation }) => [method, path, operation.operationId] as const))(
  '%s %s shows and changes nothing of another organization',
  async (method, pattern, operationId) => {
    const before = await snapshot();
    const { path, ...request } = OPERATIONS[operationId]!(victim);
    const answer = await intruder.request(method, path, request);
    if (pattern.includes('{')) {
      // Clients take every other code on the routes of files for a sandbox that does not exist.
      const [code, message] = pattern.includes('/files')
        ? ['volume_not_found', 'volume not found']
        : ['sandbox_not_found', 'resource not found'];
      expect([answer.status, answer.body]).toEqual([404, { error: { code, message, details: null } }]);
    } else {
      expect(answer.status).toBe(200);
    }
    for (const known of [
      victim.client.org.id,
      victim.sandbox.id,
      victim.volume.id,
      victim.event.id,
      'victim',
      'canary',
    ]) {
      expect(answer.text).not.toContain(known);
    }
    expect(await snapshot()).toEqual(before);
  },
);

test.each(operations.map(({ method, path, operation }) => [method, path, operation.operationId] as const))(
  '%s %s without a key, or with one that opens nothing, is the same 401',
  async (method, _pattern, operationId) => {
    const { path, ...request } = OPERATIONS[operationId]!(victim);
    const bodies = new Set<string>();
    for (const key of [
      null,
      '',
      'x',
      victim.client.key.slice(0, -1),
      'skp_' + 'A'.repeat(38),
      victim.client.key + 'A',
    ]) {
      const answer = await intruder.request(method, path, { ...request, key });
      expect([answer.status, answer.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
      bodies.add(answer.text);
    }
    expect([...bodies]).toEqual([
      '{"error":{"code":"invalid_api_key","message":"unauthorized","details":null}}',
    ]);
  },
);

test('filters that name what another organization has find nothing of it', async () => {
  for (const query of [
    { resource_id: victim.sandbox.id },
    { actor_id: victim.client.keyId },
    { event_type: 'sandbox_started' },
  ]) {
    expect((await intruder.get('/v1/events', query)).body.data).toEqual([]);
  }
  expect((await intruder.get('/v1/sandboxes', { labels: '{"team":"ml"}' })).body.data).toEqual([]);
  expect((await intruder.get('/v1/sandboxes', { name_prefix: 'victim' })).body.data).toEqual([]);
});
