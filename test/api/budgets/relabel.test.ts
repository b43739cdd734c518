import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeBudget } from '../../support/budgets.js';
import { makeClient, type Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const EXCEEDED = [403, 'budget_exceeded'];
const TEAM = { team: 'ml' };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

async function create(client: Client, name: string, labels: object, start = false): Promise<string> {
  const query = start ? { start, wait_for: 'running' } : {};
  const { status, body, text } = await client.post('/v1/sandboxes', smallRequest(name, { labels }), query);
  expect(status, text).toBe(200);
  return body.id;
}

const relabel = (client: Client, id: string, labels: object) =>
  client.patch(`/v1/sandboxes/${id}`, { labels });
const labelsOf = async (client: Client, id: string) =>
  (await client.get(`/v1/sandboxes/${id}`)).body.spec.labels;

/** A budget of the label that a running sandbox uses up at once. */
async function usedUp(client: Client, action = 'refuse_starts', label = TEAM): Promise<void> {
  const [[key, value]] = Object.entries(label) as [[string, string]];
  const scope = { type: 'label', key, value };
  const { id } = await makeBudget(client, { name: key, scope, limit: '0.000001', action });
  await until(
    async () => (await client.get(`/v1/budgets/${id}`)).body.state,
    (state) => state === 'exhausted',
  );
}

test('a sandbox that was started under other labels gets the label of a used up budget only at rest', async () => {
  const client = await service.newOrg();
  const user = await create(client, 'user', TEAM, true);
  const evader = await create(client, 'evader', TEAM);
  await usedUp(client);
  const start = () => client.post(`/v1/sandboxes/${evader}/start`, {}, { wait_for: 'running' });
  const refusedStart = await start();
  expect([refusedStart.status, refusedStart.body.error?.code]).toEqual(EXCEEDED);

  expect((await relabel(client, evader, {})).status).toBe(200);
  expect((await start()).body.status).toBe('running');
  const { body: before } = await client.get('/v1/events', { event_type: 'sandbox_relabelled' });
  const back = await relabel(client, evader, TEAM);
  expect([back.status, back.body.error]).toMatchObject([
    403,
    {
      code: 'budget_exceeded',
      message: expect.stringMatching(
        /^the budget "team" is used up \(.*\): no sandbox that runs can get its label until /,
      ),
      details: { name: 'team', limit: '0.000001' },
    },
  ]);
  // A name in the same request does not change either.
  const both = await client.patch(`/v1/sandboxes/${evader}`, { name: 'renamed', labels: TEAM });
  expect([both.status, both.body.error.code]).toEqual(EXCEEDED);
  const { body: kept } = await client.get(`/v1/sandboxes/${evader}`);
  expect([kept.name, kept.spec.labels]).toEqual(['evader', {}]);
  const { body: after } = await client.get('/v1/events', { event_type: 'sandbox_relabelled' });
  expect(after.data).toHaveLength(before.data.length);

  // A run that was admitted counts, also while its sandbox restarts.
  await client.post(`/v1/sandboxes/${evader}/restart`, {});
  const restarting = await relabel(client, evader, TEAM);
  expect([restarting.status, restarting.body.error?.code]).toEqual(EXCEEDED);
  await untilStatus(client, evader, 'running');

  await client.post(`/v1/sandboxes/${evader}/stop`, {}, { wait_for: 'stopped' });
  expect((await relabel(client, evader, TEAM)).status).toBe(200);
  const again = await start();
  expect([again.status, again.body.error?.code]).toEqual(EXCEEDED);

  // A sandbox that the budget covers already may change its other labels, and leave it.
  expect((await relabel(client, user, { ...TEAM, tier: 'x' })).status).toBe(200);
  expect((await relabel(client, user, { tier: 'x' })).status).toBe(200);
  expect(await labelsOf(client, user)).toEqual({ tier: 'x' });
});

test('budgets that only warn, or of others, refuse no labels', async () => {
  const client = await service.newOrg();
  await create(client, 'user', TEAM, true);
  const other = await create(client, 'other', {}, true);
  await usedUp(client, 'warn');
  expect((await relabel(client, other, TEAM)).status).toBe(200);
  await relabel(client, other, {});
  await makeBudget(client, { limit: '0.000001', action: 'refuse_starts' });
  await makeBudget(client, { scope: { type: 'label', key: 'team', value: 'ml' }, action: 'refuse_starts' });
  const neighbour = await service.newOrg();
  await create(neighbour, 'user', TEAM, true);
  await usedUp(neighbour);
  expect((await relabel(client, other, TEAM)).status).toBe(200);
});

test('a narrowed key learns no amounts from the refusal', async () => {
  const client = await service.newOrg();
  await create(client, 'user', { ...TEAM, stage: 'test' }, true);
  const own = await create(client, 'own', { stage: 'test' }, true);
  const { body: key } = await client.post('/v1/keys', {
    name: 'narrow',
    scopes: ['sandboxes:write'],
    labels: { stage: 'test' },
  });
  await usedUp(client);
  const narrow = makeClient(service.url, { org: client.org, key: key.key, keyId: key.id });
  const { status, body } = await relabel(narrow, own, TEAM);
  expect([status, body.error.code]).toEqual(EXCEEDED);
  expect(body.error.details).toMatchObject({ name: null, limit: null, used: null });
  expect(body.error.message).not.toContain('0.000001');
});
