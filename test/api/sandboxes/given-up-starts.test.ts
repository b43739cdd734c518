import { request as httpRequest } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { giveUpUnwanted } from '../../../src/sandboxes/placement/give-up.js';
import { runJson, run, urlOf } from '../../support/cli.js';
import { makeClient, type Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const running = { start: true, wait_for: 'running' } as const;
const NEEDS = 'needs 1 vCPU, 0 of 1 free; raise --capacity-vcpus, or stop a sandbox';
const SDK = { 'user-agent': 'microsandbox-sdk/0.6.18' };

let service: TestService;
let client: Client;
let first: { id: string };
beforeAll(async () => {
  service = await startTestService({ simulated: { capacity: { vcpus: 1 } } });
  client = await service.newOrg();
  ({ body: first } = await client.post('/v1/sandboxes', smallRequest('first'), running));
});
afterEach(async () => {
  const { body } = await client.get('/v1/sandboxes', { status: ['starting', 'failed'] });
  for (const { id } of body.data) await client.delete(`/v1/sandboxes/${id}`);
});
afterAll(async () => service.close());

/** Lets the time of every waiting start pass. */
async function pass(): Promise<void> {
  await service.ctx.pool.query(
    "update runs set wanted_until = wanted_until - interval '10 minutes' where wanted_until is not null",
  );
  await giveUpUnwanted(service.ctx, new AbortController().signal);
}

const create = (name: string, headers: Record<string, string> = {}, seconds = 1, by = client) =>
  by.request('POST', '/v1/sandboxes', {
    body: smallRequest(name),
    query: { ...running, wait_timeout: seconds },
    headers,
  });

/** Sends a create that waits, and cuts its connection once the sandbox waits for room. */
async function cutOff(
  name: string,
  headers: Record<string, string> = {},
  by = client,
): Promise<{ id: string }> {
  const sent = httpRequest(`${client.url}/v1/sandboxes?start=true&wait_for=running&wait_timeout=60`, {
    method: 'POST',
    headers: { authorization: `Bearer ${by.key}`, 'content-type': 'application/json', ...headers },
  });
  sent.on('error', () => undefined);
  sent.end(JSON.stringify(smallRequest(name)));
  const { body } = await until(
    () => client.get(`/v1/sandboxes/by-name/${name}`),
    ({ body: { status_reason: reason } }) => reason === 'insufficient_capacity',
  );
  sent.destroy();
  return body;
}

describe('a create without room', () => {
  test('tells a caller that can poll what is missing, and goes on after its wait', async () => {
    // A busy machine may take longer than the wait to consider a start.
    let count = 0;
    const { status, body } = await until(
      async () => {
        await client.delete(`/v1/sandboxes/by-name/polls-${count}`);
        return create(`polls-${(count += 1)}`);
      },
      ({ body: { status_reason: reason } }) => reason === 'insufficient_capacity',
    );
    expect([status, body.status, body.last_failure_message]).toEqual([200, 'starting', NEEDS]);
    await pass();
    expect((await client.get(`/v1/sandboxes/${body.id}`)).body.status).toBe('starting');
    const env = { DATABASE_URL: urlOf(service.database) };
    const { out } = await run(['status'], { env });
    expect(out).toMatch(/^Sandkeep \S+ {3}(short of room|\d+ problems?)/);
    expect(out.replaceAll(/\s+/g, ' ')).toContain(`1 start waits for room: ${NEEDS}`);
    expect(await runJson(['status', '--json'], { env }).catch(() => ({ healthy: false }))).toMatchObject({
      healthy: false,
    });
  });

  test('ends for an official client, which would give up without a reason, and can be started again', async () => {
    // Official clients get the specification in another form than openapi.json describes.
    const sdk = makeClient(client.url, client, { documented: false });
    let count = 0;
    const { status, body } = await until(
      () => create(`gives-up-${(count += 1)}`, SDK, 1, sdk),
      ({ body: { last_failure_message: words } }) => words?.includes('needs') === true,
    );
    expect([status, body.status, body.status_reason]).toEqual([200, 'failed', null]);
    expect(body.last_failure_message).toBe(`no worker had room for it while its caller waited: ${NEEDS}`);
    const events = await client.get('/v1/events', { event_type: 'sandbox_failed', resource_id: body.id });
    expect(events.body.data.map(({ payload }: any) => payload.reason)).toEqual(['no_room_in_time']);
    const again = await client.post(`/v1/sandboxes/${body.id}/start`, {});
    expect(again.body.status).toBe('starting');
  });

  test('ends when its caller has left and its time is over, and not before', async () => {
    const left = await cutOff('left');
    await giveUpUnwanted(service.ctx, new AbortController().signal);
    expect((await client.get(`/v1/sandboxes/${left.id}`)).body.status).toBe('starting');
    await pass();
    const { body } = await untilStatus(client, left.id, 'failed');
    expect(body.last_failure_message).toContain(NEEDS);
    const usage = await service.ctx.pool.query(
      'select started_at, end_reason from runs where sandbox_id = $1',
      [left.id],
    );
    expect(usage.rows).toEqual([{ started_at: null, end_reason: 'no_room_in_time' }]);
  });

  test('goes on while a repeated request with its key waits, and for anybody who starts it', async () => {
    const key = { 'idempotency-key': 'again' };
    const cut = await cutOff('again', key);
    await service.ctx.pool.query(
      "update runs set wanted_until = clock_timestamp() + interval '25 s' where sandbox_id = $1",
      [cut.id],
    );
    const again = client.request('POST', '/v1/sandboxes', {
      body: smallRequest('again'),
      query: { ...running, wait_timeout: 60 },
      headers: key,
    });
    await until(
      async () =>
        (
          await service.ctx.pool.query<{ later: boolean }>(
            "select wanted_until > clock_timestamp() + interval '30 s' as later from runs where sandbox_id = $1",
            [cut.id],
          )
        ).rows[0]?.later,
      (later) => later === true,
    );
    await giveUpUnwanted(service.ctx, new AbortController().signal);
    await client.post(`/v1/sandboxes/${cut.id}/start`, {});
    await pass();
    await client.delete(`/v1/sandboxes/${first.id}`);
    const { body } = await again;
    expect([body.id, body.status, body.last_failure_message]).toEqual([cut.id, 'running', null]);
  });

  test('is not prolonged by a key for a sandbox that no longer has its labels', async () => {
    const { body: narrow } = await client.post('/v1/keys', {
      name: 'narrow',
      scopes: ['sandboxes:read', 'sandboxes:write'],
      labels: { team: 'ml' },
    });
    const by = makeClient(client.url, { ...client, key: narrow.key });
    const once = { 'idempotency-key': 'once' };
    const cut = await cutOff('left-team', once, by);
    expect((await client.patch(`/v1/sandboxes/${cut.id}`, { labels: { team: 'web' } })).status).toBe(200);
    const wantedUntil = async () =>
      (await service.ctx.pool.query('select wanted_until from runs where sandbox_id = $1', [cut.id])).rows;
    const before = await wantedUntil();
    expect(before).toEqual([{ wanted_until: expect.any(String) }]);
    const { status, body } = await create('left-team', once, 60, by);
    expect([status, body.error.code]).toEqual([404, 'sandbox_not_found']);
    expect(await wantedUntil()).toEqual(before);
  });
});

test('a sandbox without a vCPU runs on a full machine, and uses memory but no vCPU-seconds', async () => {
  const full = await client.get('/v1/sandboxes', { status: 'running' });
  expect(full.body.data).toHaveLength(1);
  const shared = smallRequest('shares', { resources: { vcpus: 0, memory_mib: 64 } });
  const { body } = await client.post('/v1/sandboxes', shared, running);
  expect([body.status, body.spec.resources.vcpus]).toEqual(['running', 0]);
  const { body: usage } = await client.get('/v1/billing/usage/sandbox');
  const row = usage.rows.find(({ sandbox_id: id }: any) => id === body.id);
  expect([row.vcpu_seconds, row.mem_mib_seconds > 0]).toEqual([0, true]);
  service.ctx.runtime.bounds.sharedCpuMillis = 0;
  const refused = await client.post('/v1/sandboxes', shared);
  expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'resources.vcpus' }]);
});
