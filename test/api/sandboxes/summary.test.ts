import { afterAll, beforeAll, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { STATUSES } from '../../../src/spec/statuses.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({
    simulated: {
      capacity: { vcpus: 8 },
      failStart: ({ spec }) => (spec.image === 'broken' ? 'the image is broken' : undefined),
    },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

const summary = async (of = client) => (await of.get('/v1/sandboxes/summary')).body;
const create = async (name: string, start: boolean, reference = 'python:3.12') =>
  (await client.post('/v1/sandboxes', { name, image: { type: 'oci', reference } }, { start })).body
    .id as string;

/** The counts by the list, which has all sandboxes on a page here. */
async function listed(): Promise<Record<string, number>> {
  const { data } = (await client.get('/v1/sandboxes', { limit: 100 })).body as { data: { status: string }[] };
  return Object.fromEntries(
    STATUSES.map((status) => [status, data.filter((sandbox) => sandbox.status === status).length]),
  );
}

test('counts each status as the list does, and the starts and failures of the hour', async () => {
  const began = Date.now();
  await create('idle', false);
  await create('gone', false);
  const running = await create('runs', true);
  const stopped = await create('stopped', true);
  const failed = await create('failed', true, 'broken');
  await untilStatus(client, running, 'running');
  await untilStatus(client, failed, 'failed');
  await untilStatus(client, stopped, 'running');
  await client.post(`/v1/sandboxes/${stopped}/stop`, {}, { wait_for: 'stopped' });
  await client.delete('/v1/sandboxes/by-name/gone');
  const body = await summary();
  expect(body).toMatchObject({ created: 1, running: 1, stopped: 1, failed: 1, starting: 0, waiting: 0 });
  expect(body).toMatchObject(await listed());
  expect(body.hours).toHaveLength(24);
  const hours = body.hours as { hour: string; started: number; failed: number }[];
  expect(hours.map(({ hour }) => hour)).toEqual(hours.map(({ hour }) => hour).toSorted());
  expect(Date.parse(hours.at(-1)!.hour) + 3_600_000).toBeGreaterThan(began);
  expect(Date.parse(hours.at(-1)!.hour) - Date.parse(hours[0]!.hour)).toBe(23 * 3_600_000);
  // The test may pass the end of an hour.
  const sum = (of: 'started' | 'failed') => hours.reduce((total, hour) => total + hour[of], 0);
  expect([sum('started'), sum('failed')]).toEqual([2, 1]);
});

test('leaves out sandboxes that wait in a pool, and those of other organizations', async () => {
  const org = await service.newOrg();
  await org.request('PUT', '/v1/pools/warm', {
    body: { image: { type: 'oci', reference: 'python:3.12' }, size: 2 },
  });
  await until(
    async () => (await org.get('/v1/pools/warm')).body,
    ({ ready }) => ready === 2,
  );
  const body = await summary(org);
  expect(STATUSES.map((status) => body[status])).toEqual(STATUSES.map(() => 0));
});

test('counts starts that wait for room', async () => {
  const org = await service.newOrg();
  // The worker has room for one of them, unless other tests use it.
  const large = { vcpus: 8, memory_mib: 16 };
  for (const name of ['first', 'second']) {
    const { status } = await org.post(
      '/v1/sandboxes',
      { name, image: { type: 'oci', reference: 'python:3.12' }, resources: large },
      { start: true },
    );
    expect(status).toBe(200);
  }
  const body = await until(
    () => summary(org),
    ({ waiting, starting }) => waiting > 0 && waiting === starting,
  );
  expect(body.running + body.waiting).toBe(2);
});

test('is refused to a key that is narrowed to labels', async () => {
  const access = { ...FULL_ACCESS, scopes: ['sandboxes:read'] as const, labels: { team: 'ml' } };
  const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), access);
  const { status, body } = await client.request('GET', '/v1/sandboxes/summary', { key });
  expect([status, body.error.code]).toEqual([403, 'label_not_allowed']);
  expect(body.error.message).toMatch(/list sandboxes instead/);
});
