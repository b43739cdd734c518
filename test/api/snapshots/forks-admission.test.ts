import { afterAll, beforeAll, expect, test } from 'vitest';
import { MOST_UNFINISHED_FORKS } from '../../../src/snapshots/source.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { forked } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' } as const;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

async function start(client: Client, name: string, part: Record<string, unknown> = {}): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, part), running);
  expect(body.status, text).toBe('running');
  return body.id;
}

const fork = async (client: Client, id: string, request: object) =>
  client.post(`/v1/sandboxes/${id}/fork`, request);

/** The sandboxes, operations and ports of the organization, and its events of forks. */
async function everything(on: TestService, { org }: Client): Promise<unknown> {
  const { rows } = await on.ctx.pool.query<{ counts: unknown }>(
    `select json_build_array(
       (select count(*) from sandboxes where org_id = $1), (select count(*) from snapshots where org_id = $1),
       (select count(*) from runs where org_id = $1), (select count(*) from published_ports where org_id = $1),
       (select count(*) from events where org_id = $1 and event_type like 'sandbox_fork%')) as counts`,
    [org.id],
  );
  return rows[0]!.counts;
}

/** Checks that the request is refused, and that nothing of it stays. */
async function refused(on: TestService, client: Client, id: string, request: object) {
  const before = await everything(on, client);
  const { status, body, text } = await fork(client, id, request);
  expect(status, text).toBeGreaterThanOrEqual(400);
  expect(await everything(on, client)).toEqual(before);
  return body.error;
}

const limit = async ({ org }: Client, text: string) =>
  service.ctx.pool.query(`update quotas set ${text} where org_id = $1`, [org.id]);

test('a quota that lacks one of the copies refuses all', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'counted');
  for (const [quota, most] of [
    ['max_sandboxes', 3],
    ['max_concurrent_persistent_running', 3],
    ['max_snapshots', 0],
  ] as const) {
    await limit(client, `${quota} = ${most}`);
    const error = await refused(service, client, id, { count: 3 });
    expect([error.code, error.details.quota]).toEqual(['quota_exceeded', quota]);
    await limit(client, `${quota} = null`);
  }
  await limit(client, 'max_sandboxes = 4, max_concurrent_persistent_running = 4, max_snapshots = 1');
  const { body, text } = await fork(client, id, { count: 3 });
  expect((await forked(client, body.id))['status'], text).toBe('succeeded');
  // A start adds a run and an event, and nothing may be added by the refusal.
  await until(
    async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
    (sandboxes) => sandboxes.every(({ status }: any) => status === 'running'),
  );
  expect((await refused(service, client, id, { count: 1 })).code).toBe('quota_exceeded');
});

test('copies that do not start count among sandboxes only', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'stopped-copies');
  await limit(client, 'max_concurrent_persistent_running = 1');
  const { body } = await fork(client, id, { count: 5, start: false });
  const { sandboxes } = await forked(client, body.id);
  expect(sandboxes.map(({ status }: any) => status)).toEqual(Array.from({ length: 5 }, () => 'created'));
  const more = await client.post(`/v1/sandboxes/${sandboxes[0].id}/start`);
  expect(more.body.error.details.quota).toBe('max_concurrent_persistent_running');
});

test('concurrent requests exceed no quota', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'concurrent');
  await limit(client, 'max_sandboxes = 11');
  const answers = await Promise.all([1, 2, 3, 4].map(() => fork(client, id, { count: 4, start: false })));
  expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 200, 403, 403]);
  for (const { status, body } of answers) if (status === 200) await forked(client, body.id);
  const { body } = await client.get('/v1/sandboxes', { limit: 100 });
  expect(body.data.length).toBe(9);
});

test('a taken name refuses all copies, and the answer names it', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'named');
  await client.post('/v1/sandboxes', smallRequest('second'));
  const error = await refused(service, client, id, { count: 3, names: ['first', 'second', 'third'] });
  expect([error.code, error.details.name]).toEqual(['name_already_exists', 'second']);
});

test('copies that never fit side by side are refused, unless they do not start', async () => {
  const small = await startForTest({
    simulated: { capacity: { vcpus: 8, memoryMib: 1024 } },
    settings: { stopGraceMs: 0 },
  });
  const client = await small.newOrg();
  const id = await start(client, 'large', { resources: { vcpus: 1, memory_mib: 256 } });
  const error = await refused(small, client, id, { count: 5 });
  expect([error.code, error.details]).toEqual(['invalid_sandbox_config', { field: 'count' }]);
  expect(error.message).toContain('1280 MiB');
  // Three fit beside the source, and the last one waits for its end.
  const { body } = await fork(client, id, { count: 4 });
  await until(
    async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
    (sandboxes) => sandboxes.filter(({ status }: any) => status === 'running').length === 3,
  );
  await client.delete(`/v1/sandboxes/${id}`);
  await until(
    async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
    (sandboxes) => sandboxes.every(({ status }: any) => status === 'running'),
  );
  for (const { id: copy } of body.sandboxes.slice(1)) await client.delete(`/v1/sandboxes/${copy}`);
  expect((await fork(client, body.sandboxes[0].id, { count: 5, start: false })).status).toBe(200);
});

test('a suspended organization forks nothing', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'suspended');
  await limit(client, 'is_suspended = true');
  const error = await refused(service, client, id, { count: 1, start: false });
  expect(error.details.quota).toBe('is_suspended');
});

test('a size that is not allowed any more is refused', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'shrunk', { resources: { vcpus: 2, memory_mib: 64 } });
  await limit(client, 'max_vcpus_per_sandbox = 1');
  const error = await refused(service, client, id, { count: 1 });
  expect(error.details.quota).toBe('max_vcpus_per_sandbox');
});

test('operations that wait for their capture are bounded, and their copies wait without an engine', async () => {
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const slow = await startForTest({
    simulated: { onCapture: async () => held },
    settings: { stopGraceMs: 0 },
  });
  const client = await slow.newOrg();
  const id = await start(client, 'bounded');
  const made: string[] = [];
  for (let index = 0; index < MOST_UNFINISHED_FORKS; index += 1) {
    const { body, text } = await fork(client, id, { count: 1 });
    expect(body.status, text).toBe('queued');
    made.push(body.id);
  }
  const error = await refused(slow, client, id, { count: 1 });
  expect([error.code, error.details]).toEqual([
    'quota_exceeded',
    { limit: MOST_UNFINISHED_FORKS, used: MOST_UNFINISHED_FORKS },
  ]);
  // Other starts of the organization do not wait for them.
  await start(client, 'beside');
  const waiting = (await client.get('/v1/sandboxes/by-name/bounded-1')).body;
  expect([waiting.status, waiting.status_reason, waiting.started_at]).toEqual([
    'starting',
    'scheduling',
    null,
  ]);
  release();
  for (const one of made) expect((await forked(client, one))['status']).toBe('succeeded');
});
