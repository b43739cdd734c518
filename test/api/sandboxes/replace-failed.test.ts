import { afterAll, beforeAll, expect, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

let service: TestService;
let client: Client;
const failing = new Set<string>();

beforeAll(async () => {
  service = await startTestService({
    simulated: { failStart: ({ spec }) => (failing.has(spec.image) ? 'the image is broken' : undefined) },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

const running = { start: true, wait_for: 'running', wait_timeout: 90 };

test('takes the name of a sandbox that failed before it ever ran, with its slug', async () => {
  const create = (more: object = {}) =>
    client.post('/v1/sandboxes', smallRequest('again', { slug: 'again-slug', ...more }), running);
  failing.add('broken');
  const failed = await create({ image: { type: 'oci', reference: 'broken' } });
  expect(failed.body).toMatchObject({ status: 'failed', started_at: null });
  const answers = await Promise.all(Array.from({ length: 5 }, () => create()));
  expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409, 409, 409, 409]);
  const { body } = answers.find(({ status }) => status === 200)!;
  expect(body).toMatchObject({ name: 'again', slug: 'again-slug', status: 'running' });
  expect((await client.get(`/v1/sandboxes/${failed.body.id}`)).status).toBe(404);
  const query = { resource_id: failed.body.id, event_type: 'sandbox_destroyed' };
  const events = (await client.get('/v1/events', query)).body.data;
  expect(events.map(({ payload }: any) => [payload.previous_status, payload.reason])).toEqual([
    ['failed', 'replaced'],
  ]);
});

test('leaves the name to a failed sandbox that has run, and to one that another name holds the slug of', async () => {
  const image = { type: 'oci', reference: 'breaks-later' };
  const { body } = await client.post('/v1/sandboxes', smallRequest('kept', { image }), running);
  await client.request('POST', `/v1/sandboxes/${body.id}/stop`, { query: { wait_for: 'stopped' } });
  failing.add('breaks-later');
  const second = await client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
  expect(second.body.status).toBe('failed');
  expect((await client.post('/v1/sandboxes', smallRequest('kept'))).status).toBe(409);

  await client.post('/v1/sandboxes', smallRequest('holder', { slug: 'held-slug' }));
  const never = await client.post('/v1/sandboxes', smallRequest('unlucky', { image }), running);
  const refused = await client.post('/v1/sandboxes', smallRequest('unlucky', { slug: 'held-slug' }));
  expect([refused.status, refused.body.error.details]).toEqual([409, { slug: 'held-slug' }]);
  expect((await client.get(`/v1/sandboxes/${never.body.id}`)).body.status).toBe('failed');
});

test('removes a failed sandbox at a time after the lock, in which its failure may have been recorded', async () => {
  failing.add('broken');
  const { body: failed } = await client.post(
    '/v1/sandboxes',
    smallRequest('waiting', { image: { type: 'oci', reference: 'broken' } }),
    running,
  );
  const { pool, now } = service.ctx;
  const { create, released } = await inTransaction(pool, async (tx) => {
    await tx.query('select from sandboxes where id = $1 for update', [failed.id]);
    const create = client.post('/v1/sandboxes', smallRequest('waiting'));
    await until(
      async () =>
        pool.query(
          "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        ),
      ({ rowCount }) => rowCount! > 0,
    );
    return { create, released: now() };
  });
  expect((await create).status).toBe(200);
  const query = { resource_id: failed.id, event_type: 'sandbox_destroyed' };
  const [removal] = (await client.get('/v1/events', { ...query, since: released })).body.data;
  expect(removal.payload.reason).toBe('replaced');
});
