import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until } from '../../support/polling.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

test('a new organization has a host volume, which cannot be deleted', async () => {
  const fresh = await service.newOrg();
  const { body } = await fresh.get('/v1/volumes');
  expect(body).toEqual([
    {
      id: body[0].id,
      kind: 'host',
      name: null,
      storage: 'block',
      status: 'active',
      labels: {},
      capacity_bytes: null,
      used_bytes: null,
      created_at: body[0].created_at,
      updated_at: body[0].created_at,
    },
  ]);
  expect((await fresh.get('/v1/volumes/default')).body).toEqual(body[0]);
  const refused = await fresh.delete(`/v1/volumes/${body[0].id}`);
  expect([refused.status, refused.body]).toEqual([
    409,
    { error: { code: 'invalid_request', message: 'the host volume cannot be deleted', details: null } },
  ]);
});

test('a volume can be created, listed and scheduled for deletion, and a second delete gives the same answer', async () => {
  const made = await client.post('/v1/volumes', { name: 'team-data', labels: { a: 'b' }, capacity_gib: 2 });
  expect([made.status, made.body.capacity_bytes, made.body.labels]).toEqual([200, 2 * 1024 ** 3, { a: 'b' }]);
  const duplicate = await client.post('/v1/volumes', { name: 'team-data' });
  expect([duplicate.status, duplicate.body.error.code]).toEqual([409, 'volume_already_exists']);

  const deleted = await client.delete(`/v1/volumes/${made.body.id}`);
  expect(deleted.status).toBe(200);
  const purge = /goes at (\S+)$/.exec(deleted.body.message)![1]!;
  expect(Date.parse(purge) - Date.now()).toBeGreaterThan(23.9 * 3_600_000);
  expect((await client.delete(`/v1/volumes/${made.body.id}`)).body).toEqual(deleted.body);
  const events = await client.get('/v1/events', { resource_id: made.body.id });
  expect(events.body.data.map(({ event_type }: any) => event_type)).toEqual([
    'volume_deletion_scheduled',
    'volume_created',
  ]);
});

test('a volume under deletion is listed only on request', async () => {
  const mine = await service.newOrg();
  const { body: first } = await mine.post('/v1/volumes', { name: 'team-data' });
  await mine.delete(`/v1/volumes/${first.id}`);
  // The name is free again.
  const { body: second } = await mine.post('/v1/volumes', { name: 'team-data' });
  const listed = async (query = {}) =>
    (await mine.get('/v1/volumes', query)).body
      .filter(({ kind }: any) => kind === 'managed')
      .map(({ id, status }: any) => [id, status]);
  expect(await listed()).toEqual([[second.id, 'active']]);
  expect(await listed({ include: 'deleted' })).toEqual([
    [second.id, 'active'],
    [first.id, 'deleting'],
  ]);
  await mine.delete(`/v1/volumes/${second.id}`);
  expect(await listed()).toEqual([]);
  await mine.post(`/v1/volumes/${first.id}/restore`);
  expect(await listed()).toEqual([[first.id, 'active']]);
  const refused = await mine.get('/v1/volumes', { include: 'everything' });
  expect([refused.status, refused.body.error.details]).toEqual([400, { parameter: 'include' }]);
});

test('a mounted volume is in use until every sandbox that mounts it is deleted', async () => {
  const { body: volume } = await client.post('/v1/volumes', { name: 'mounted' });
  const mounts = [{ type: 'named', name: 'mounted', guest: '/data' }];
  const one = await client.post('/v1/sandboxes', smallRequest('mounts-one', { mounts }));
  const two = await client.post('/v1/sandboxes', smallRequest('mounts-two', { mounts }));
  const refused = await client.delete(`/v1/volumes/${volume.id}`);
  expect([refused.status, refused.body.error.code, refused.body.error.details]).toEqual([
    409,
    'volume_in_use',
    { sandboxes: ['mounts-one', 'mounts-two'] },
  ]);
  await client.delete(`/v1/sandboxes/${one.body.id}`);
  expect((await client.delete(`/v1/volumes/${volume.id}`)).status).toBe(409);
  await client.delete(`/v1/sandboxes/${two.body.id}`);
  expect((await client.delete(`/v1/volumes/${volume.id}`)).status).toBe(200);
  const late = await client.post('/v1/sandboxes', smallRequest('mounts-late', { mounts }));
  expect([late.status, late.body.error.code]).toEqual([404, 'volume_not_found']);
});

test('exactly one of a concurrent mount and delete succeeds', async () => {
  for (let round = 0; round < 20; round += 1) {
    const name = `race-${round}`;
    const { body: volume } = await client.post('/v1/volumes', { name });
    const mounts = [{ type: 'named', name, guest: '/data' }];
    const [created, deleted] = await Promise.all([
      client.post('/v1/sandboxes', smallRequest(name, { mounts })),
      client.delete(`/v1/volumes/${volume.id}`),
    ]);
    expect([`${created.status} ${deleted.status}`]).toContain(created.status === 200 ? '200 409' : '404 200');
  }
});

test('a deleted volume is purged after its retention, and its accruals stay', async () => {
  const quick = await startTestService({ settings: { volumePurgeAfterMs: 0 } });
  try {
    const mine = await quick.newOrg();
    const { body: volume } = await mine.post('/v1/volumes', { name: 'brief' });
    await quick.ctx.pool.query(
      `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
       values ($1, $2, '2026-01-01T00:00:00Z', '2026-01-01T00:00:10Z', 5)`,
      [mine.org.id, volume.id],
    );
    await mine.delete(`/v1/volumes/${volume.id}`);
    await until(
      () => mine.get('/v1/volumes', { include: 'deleted' }),
      ({ body }) => body.length === 1,
    );
    expect((await mine.delete(`/v1/volumes/${volume.id}`)).status).toBe(404);
    const usage = await mine.get('/v1/billing/usage/storage', { since: '2026-01-01', until: '2026-01-02' });
    expect(usage.body).toEqual({
      rows: [{ day: '2026-01-01T00:00:00Z', volume_id: volume.id, mib_seconds: 50 }],
      volumes: [],
    });
    const events = await mine.get('/v1/events', { resource_id: volume.id, event_type: 'volume_purged' });
    expect(events.body.data).toHaveLength(1);
  } finally {
    await quick.close();
  }
});

test('a volume can be read by its id, also the host volume and one under deletion', async () => {
  const mine = await service.newOrg();
  const { body: made } = await mine.post('/v1/volumes', { name: 'one', labels: { a: 'b' }, capacity_gib: 2 });
  const { body: host } = await mine.get('/v1/volumes/default');
  for (const volume of [made, host]) {
    const { status, body } = await mine.get(`/v1/volumes/${volume.id}`);
    expect([status, body]).toEqual([200, volume]);
  }
  await mine.delete(`/v1/volumes/${made.id}`);
  const { body: leaving } = await mine.get(`/v1/volumes/${made.id}`);
  expect(leaving).toEqual({ ...made, status: 'deleting', updated_at: leaving.updated_at });
  for (const [by, id] of [
    [mine, uuidv7()],
    [client, made.id],
  ] as const) {
    const { status, body } = await by.get(`/v1/volumes/${id}`);
    expect([status, body.error.code]).toEqual([404, 'sandbox_not_found']);
  }
});

test('an unknown volume is answered 404 in the form of the contract', async () => {
  const { status, body } = await client.delete(`/v1/volumes/${uuidv7()}`);
  expect([status, body.error]).toEqual([
    404,
    { code: 'sandbox_not_found', message: 'resource not found', details: null },
  ]);
});
