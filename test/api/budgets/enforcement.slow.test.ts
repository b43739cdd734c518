import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/lib/uuid.js';
import { Waker } from '../../../src/previews/wake/waker.js';
import { makeBudget } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { ended } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' };
/** 3.6 ms: a sandbox that runs has used it up at once. */
const LEAST = '0.000001';
const EXCEEDED = [403, 'budget_exceeded'];

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

async function run(client: Client, name: string, labels = {}): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, { labels }), running);
  expect(body.status, text).toBe('running');
  return body.id;
}

const statusOf = async (client: Client, id: string) => (await client.get(`/v1/sandboxes/${id}`)).body.status;

async function untilExhausted(client: Client, id: string): Promise<void> {
  await until(
    async () => (await client.get(`/v1/budgets/${id}`)).body.state,
    (state) => state === 'exhausted',
  );
}

test('a used up budget refuses every way of starting, and stops nothing unless it says so', async () => {
  const client = await service.newOrg();
  const stays = await run(client, 'stays');
  const source = await run(client, 'source');
  const snapshot = { kind: 'disk', sandbox_id: source, name: 'disk' };
  await ended(client, (await client.post('/v1/snapshots', snapshot)).body.id);
  const { body: stopped } = await client.post('/v1/sandboxes', smallRequest('stopped'));
  const wakes = { lifecycle: { wake_on_request: true } };
  const { body: sleeper } = await client.post('/v1/sandboxes', smallRequest('sleeper', wakes));
  const { name: _, ...template } = smallRequest('');
  const image = { type: 'oci', reference: 'warm:1' };
  await client.request('PUT', '/v1/pools/warm', { body: { ...template, image, size: 1 } });
  const pool = async () => (await client.get('/v1/pools/warm')).body;
  const ready = await until(pool, (each) => each.ready === 1);
  const budget = await makeBudget(client, { limit: LEAST, action: 'refuse_starts' });
  await untilExhausted(client, budget.id);

  const startOf = (id: string) => client.post(`/v1/sandboxes/${id}/start`, {});
  const refused = {
    create: await client.post('/v1/sandboxes', smallRequest('new'), { start: true }),
    start: await startOf(stopped.id),
    restart: await client.post(`/v1/sandboxes/${stays}/restart`, {}),
    'restart of a stopped one': await client.post(`/v1/sandboxes/${stopped.id}/restart`, {}),
    fork: await client.post(`/v1/sandboxes/${stays}/fork`, { count: 1 }),
    'handover of a pool': await client.post(
      '/v1/sandboxes',
      { ...smallRequest('mine'), image },
      { start: true },
    ),
    'create from a snapshot': await client.post(
      '/v1/sandboxes',
      { ...smallRequest('copy'), image: { type: 'disk_snapshot', id: 'disk' } },
      { start: true },
    ),
  };
  for (const [way, { status, body, text }] of Object.entries(refused)) {
    expect([status, body.error?.code], `${way}: ${text}`).toEqual(EXCEEDED);
  }
  const wake = { orgId: client.org.id, sandboxId: sleeper.id, previewId: newId() };
  const patience = { until: performance.now() + 60_000, signal: new AbortController().signal };
  await expect(new Waker(service.ctx).wait(wake, patience)).rejects.toMatchObject({
    details: { reason: 'quota' },
  });
  // A start that waits for the end of a stop is admitted when it is requested.
  await client.post(`/v1/sandboxes/${source}/stop`, {});
  const queued = await client.post(`/v1/sandboxes/${source}/start`, {}, { wait_for: 'running' });
  expect([queued.status, queued.body.error?.code]).toEqual(EXCEEDED);
  expect(await statusOf(client, stays)).toBe('running');
  // The pool keeps what it has, and adds none.
  await service.ctx.pool.query('update pools set size = 2 where org_id = $1', [client.org.id]);
  const short = await until(pool, (each) => each.last_failure_message !== null);
  expect(short.last_failure_message).toContain('is used up');
  expect(short.sandboxes.map(({ id }: any) => id)).toEqual(ready.sandboxes.map(({ id }: any) => id));

  await client.patch(`/v1/budgets/${budget.id}`, { limit: '1000' });
  expect((await startOf(stopped.id)).status).toBe(200);
});

test('a used up budget that stops, stops what it covers, and never what is to be kept', async () => {
  const client = await service.newOrg();
  const neighbour = await service.newOrg();
  const team = { team: 'ml' };
  const [plain, covered, kept, relabelled] = [
    await run(client, 'plain'),
    await run(client, 'covered', team),
    await run(client, 'kept', { ...team, 'sandkeep.keep': 'true' }),
    await run(client, 'relabelled', team),
  ];
  const foreign = await run(neighbour, 'foreign', team);
  await client.patch(`/v1/sandboxes/${relabelled}`, { labels: {} });
  const budget = await makeBudget(client, {
    name: 'team',
    scope: {
      type: 'label',
      key: 'team',
      value: 'ml',
    },
    limit: LEAST,
    action: 'stop',
  });
  const { body: ended } = await untilStatus(client, covered, 'stopped');
  expect([ended.stop_reason, ended.stop_message]).toEqual([
    'budget',
    'a budget of the organization that covers it is used up',
  ]);
  const events = await client.get('/v1/events', { event_type: 'sandbox_stop_requested' });
  expect(events.body.data).toMatchObject([
    { actor: { code: 'budgets' }, payload: { sandbox_id: covered, reason: 'budget_exhausted' } },
  ]);
  // The next check stops no more.
  const { rows } = await service.ctx.pool.query<{ until: string }>(
    'select checked_until as until from budgets where id = $1',
    [budget.id],
  );
  await service.ctx.pool.query('update budgets set next_check_at = now() where id = $1', [budget.id]);
  await until(
    async () =>
      (
        await service.ctx.pool.query('select from budgets where id = $1 and checked_until > $2', [
          budget.id,
          rows[0]!.until,
        ])
      ).rowCount,
    (count) => count === 1,
  );
  for (const id of [plain, kept, relabelled]) expect(await statusOf(client, id)).toBe('running');
  expect(await statusOf(neighbour, foreign)).toBe('running');
  const reached = await client.get('/v1/events', { event_type: 'budget_threshold_reached' });
  expect(reached.body.data.map(({ payload }: any) => payload.threshold)).toEqual([100, 80, 50]);
});

test('a used up budget of a key stops the runs of this key, and a handed over sandbox is its own from then on', async () => {
  const client = await service.newOrg();
  const { body: key } = await client.post('/v1/keys', { name: 'other', scopes: ['org:admin'] });
  const create = async (name: string, by: string, image = {}) =>
    (
      await client.request('POST', '/v1/sandboxes', {
        body: { ...smallRequest(name), ...image },
        query: running,
        key: by,
      })
    ).body.id as string;
  const { name: _, ...template } = smallRequest('');
  const image = { image: { type: 'oci', reference: 'warm:2' } };
  await client.request('PUT', '/v1/pools/warm', { body: { ...template, ...image, size: 1 } });
  await until(
    async () => (await client.get('/v1/pools/warm')).body.ready,
    (ready) => ready === 1,
  );
  const own = await create('own', client.key);
  const others = await create('others', key.key);
  const pooled = await create('pooled', key.key, image);
  const { rows } = await service.ctx.pool.query(
    'select started_by_key, key_since > started_at as later from runs where org_id = $1 and sandbox_id = $2',
    [client.org.id, pooled],
  );
  expect(rows).toEqual([{ started_by_key: key.id, later: true }]);
  await makeBudget(client, { scope: { type: 'api_key', api_key_id: key.id }, limit: LEAST, action: 'stop' });
  for (const id of [others, pooled]) await untilStatus(client, id, 'stopped');
  expect(await statusOf(client, own)).toBe('running');
});
