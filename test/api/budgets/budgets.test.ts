import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import { setQuotas } from '../../../src/quotas/set.js';
import type { Answer } from '../../support/answer.js';
import { insertRun, makeBudget, ORGANIZATION } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const NOON = '2028-02-11T12:00:00.000000Z';
const RENEWS = '2028-03-01T00:00:00Z';
const BOOK = {
  currency: 'EUR',
  prices: { vcpu_hour: '0.05', memory_gib_hour: '0.01', storage_gib_hour: '0.001' },
};

let service: TestService;
let client: Client;
let clock = NOON;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => clock });
});
afterAll(() => service.close());
beforeEach(async () => {
  clock = NOON;
  setBook(BOOK);
  client = await service.newOrg();
});

function setBook(book: object | null): void {
  const priceBook = book && parsePriceBook(JSON.stringify(book), 'book.json');
  Object.assign(service.ctx.settings, { priceBook });
}

async function create(name: string, more: Record<string, unknown> = {}, by = client): Promise<string> {
  return (await by.post('/v1/sandboxes', smallRequest(name, more))).body.id;
}

const start = (id: string, by = client): Promise<Answer> => by.post(`/v1/sandboxes/${id}/start`, {});
const show = async (id: string) => (await client.get(`/v1/budgets/${id}`)).body;
const run = (fields: Parameters<typeof insertRun>[2], by = client) => insertRun(service.ctx.pool, by, fields);
const refusal = ({ status, body }: Answer) => [status, body.error?.code];
const EXCEEDED = [403, 'budget_exceeded'];

async function withKey(fields: object): Promise<Client> {
  const { body } = await client.post('/v1/keys', { name: 'other', scopes: ['org:admin'], ...fields });
  const key = body.key as string;
  return {
    ...client,
    key,
    keyId: body.id,
    get: (path, query) => client.request('GET', path, { key, ...(query === undefined ? {} : { query }) }),
    post: (path, more, query) =>
      client.request('POST', path, { key, body: more, ...(query === undefined ? {} : { query }) }),
  };
}

describe('a budget', () => {
  test('is created with defaults, shown, listed by name, changed and deleted, each with an event', async () => {
    const made = await makeBudget(client, { name: 'all', limit: '500.50', measure: 'cost' });
    expect(made).toMatchObject({
      org_id: client.org.id,
      name: 'all',
      scope: ORGANIZATION,
      measure: 'cost',
      limit: '500.5',
      currency: 'EUR',
      thresholds: [50, 80, 100],
      action: 'warn',
      state: 'ok',
      reached: [],
      used: '0',
      forecast: '0',
      used_percent: 0,
      period_start: '2028-02-01T00:00:00Z',
      period_end: RENEWS,
    });
    const label = await makeBudget(client, {
      name: 'Label',
      scope: { type: 'label', key: 'team', value: 'ml' },
    });
    const key = await makeBudget(client, {
      name: 'key',
      scope: { type: 'api_key', api_key_id: client.keyId },
    });
    const list = async (query: object) => (await client.get('/v1/budgets', query as never)).body;
    const first = await list({ limit: 2 });
    expect([first.data, first.has_more]).toEqual([[label, made], true]);
    expect((await list({ cursor: first.next_cursor })).data).toEqual([key]);
    const change = { name: 'everything', limit: '1', thresholds: [100, 90], action: 'stop' };
    const { body: changed } = await client.patch(`/v1/budgets/${made.id}`, change);
    expect(changed).toEqual({ ...made, ...change, thresholds: [90, 100], updated_at: changed.updated_at });
    expect(await show(made.id)).toEqual(changed);
    expect((await client.delete(`/v1/budgets/${made.id}`)).body).toEqual({ message: 'budget deleted' });
    expect((await client.get(`/v1/budgets/${made.id}`)).status).toBe(404);
    const events = await client.get('/v1/events', { category: 'billing', resource_id: made.id });
    expect(events.body.data.map(({ event_type, payload }: any) => [event_type, payload])).toEqual(
      [
        [
          'budget_created',
          {
            budget_id: made.id,
            name: 'all',
            scope: ORGANIZATION,
            measure: 'cost',
            currency: 'EUR',
            limit: '500.5',
            thresholds: [50, 80, 100],
            action: 'warn',
          },
        ],
        [
          'budget_updated',
          {
            budget_id: made.id,
            name: 'all',
            before: {
              name: 'all',
              limit: '500.5',
              thresholds: [50, 80, 100],
              action: 'warn',
            },
            after: {
              name: 'everything',
              limit: '1',
              thresholds: [90, 100],
              action: 'stop',
            },
          },
        ],
        ['budget_deleted', { budget_id: made.id, name: 'everything' }],
      ].toReversed(),
    );
  });

  test.each([
    [{ limit: '0' }, 'limit'],
    [{ limit: '0.000000' }, 'limit'],
    [{ limit: '-1' }, 'limit'],
    [{ limit: '1e3' }, 'limit'],
    [{ limit: 5 }, 'limit'],
    [{ limit: '1.0000001' }, 'limit'],
    [{ limit: '1000000000000' }, 'limit'],
    [{ name: '' }, 'name'],
    [{ name: 'a\nb' }, 'name'],
    [{ thresholds: [] }, 'thresholds'],
    [{ thresholds: [50, 50] }, 'thresholds'],
    [{ thresholds: [0] }, 'thresholds[0]'],
    [{ thresholds: [1001] }, 'thresholds[0]'],
    [{ action: 'kill' }, 'action'],
    [{ measure: 'hours' }, 'measure'],
    [{ scope: { type: 'label', key: 'service.x', value: 'y' } }, 'scope.key'],
    [{ scope: { type: 'label', key: '', value: 'y' } }, 'scope.key'],
    [{ scope: { type: 'api_key', api_key_id: '01a206d4-f96a-775b-a087-81aeab380601' } }, 'scope.api_key_id'],
    [{ more: 1 }, 'more'],
  ])('is refused with %j, by the field', async (fields, field) => {
    const request = { name: 'x', scope: ORGANIZATION, measure: 'vcpu_hours', limit: '1', ...fields };
    const { status, body } = await client.post('/v1/budgets', request);
    expect([status, body.error.details?.field], body.error.message).toEqual([400, field]);
    expect((await client.get('/v1/budgets')).body.data).toEqual([]);
  });

  test('has a name of its own', async () => {
    await makeBudget(client, { name: 'one' });
    const two = await makeBudget(client, { name: 'two' });
    const taken = [409, 'name_already_exists'];
    const again = { name: 'one', scope: ORGANIZATION, measure: 'cost', limit: '1' };
    expect(refusal(await client.post('/v1/budgets', again))).toEqual(taken);
    expect(refusal(await client.patch(`/v1/budgets/${two.id}`, { name: 'one' }))).toEqual(taken);
    expect((await client.patch(`/v1/budgets/${two.id}`, { name: 'two' })).status).toBe(200);
  });

  test('is one of at most so many as the operator allows', async () => {
    const { budgetsPerOrg } = service.ctx.settings;
    for (let count = 0; count < budgetsPerOrg; count += 1) await makeBudget(client);
    const request = { name: 'more', scope: ORGANIZATION, measure: 'vcpu_hours', limit: '1' };
    const more = await client.post('/v1/budgets', request);
    expect([more.status, more.body.error]).toMatchObject([
      403,
      { code: 'quota_exceeded', details: { limit: budgetsPerOrg, used: budgetsPerOrg } },
    ]);
    const other = await service.newOrg();
    await makeBudget(other);
  });

  test('is created, changed and deleted once for an idempotency key', async () => {
    const body = { name: 'once', scope: ORGANIZATION, measure: 'vcpu_hours', limit: '1' };
    const headers = { 'idempotency-key': 'once' };
    const send = async (method: string, path: string, more: object = {}) => {
      const answer = await client.request(method, path, { headers, ...more });
      expect(answer.status, answer.text).toBe(200);
      return [answer.headers.get('idempotency-replayed'), answer.text];
    };
    for (const [method, more] of [
      ['POST', { body }],
      ['PATCH', { body: { limit: '2' } }],
      ['DELETE', {}],
    ] as const) {
      headers['idempotency-key'] = method;
      const { data } = (await client.get('/v1/budgets')).body;
      const path = method === 'POST' ? '/v1/budgets' : `/v1/budgets/${data[0].id}`;
      const [, first] = await send(method, path, more);
      expect(await send(method, path, more)).toEqual(['true', first]);
    }
    const events = await client.get('/v1/events', { category: 'billing' });
    expect(events.body.data).toHaveLength(3);
  });

  test('is read with billing:read, and written by administrators alone', async () => {
    const { id } = await makeBudget(client, { name: 'one' });
    const reader = await withKey({ scopes: ['billing:read'] });
    expect((await reader.get(`/v1/budgets/${id}`)).status).toBe(200);
    expect((await reader.get('/v1/budgets')).body.data).toHaveLength(1);
    const request = { name: 'x', scope: ORGANIZATION, measure: 'vcpu_hours', limit: '1' };
    expect(refusal(await reader.post('/v1/budgets', request))).toEqual([403, 'insufficient_scope']);
  });
});

describe('the use of a budget', () => {
  test('counts closed runs and open ones until now, to the microsecond, in the UTC month', async () => {
    const id = await create('one');
    const other = await create('two');
    await run({
      sandbox: id,
      from: '2028-01-31T23:00:00Z',
      to: '2028-02-01T01:00:00.000001Z',
      resources: [2, 512, 0],
    });
    await run({ sandbox: other, from: '2028-02-11T11:30:00Z', to: null, resources: [1, 2048, 1024] });
    const used = async (measure: string) => (await makeBudget(client, { measure })).used;
    expect(await used('vcpu_hours')).toBe('2.500000000555');
    expect(await used('memory_gib_hours')).toBe('1.500000000138');
    expect(await used('disk_gib_hours')).toBe('0.5');
    expect(await used('sandbox_hours')).toBe('1.500000000277');
    expect(await used('cost')).toBe('0.14000000002919');
    clock = '2028-03-01T00:00:00.000000Z';
    expect(await used('vcpu_hours')).toBe('0');
    clock = '2028-03-01T01:00:00.000000Z';
    expect(await used('vcpu_hours')).toBe('1');
  });

  test('has a forecast, which uses up the included hours first', async () => {
    const id = await create('one', { labels: { team: 'ml' } });
    const month = 29 * 24;
    // A quarter of the month is over.
    clock = '2028-02-08T06:00:00.000000Z';
    await run({
      sandbox: id,
      from: '2028-02-01T00:00:00Z',
      to: '2028-02-02T00:00:00Z',
      resources: [2, 1024, 0],
    });
    const hours = await makeBudget(client, { measure: 'vcpu_hours', limit: '1000' });
    expect([hours.used, hours.forecast, hours.used_percent]).toEqual(['48', '192', 4.8]);
    await setQuotas(service.ctx.pool, client.org.id, { included_vcpu_hours: 92 }, operator('test'));
    for (const scope of [ORGANIZATION, { type: 'label', key: 'team', value: 'ml' }]) {
      const cost = await makeBudget(client, { measure: 'cost', scope });
      // (192 - 92) x 0.05 + 96 x 0.01
      expect([cost.used, cost.forecast]).toEqual(['0.24', '5.96']);
    }
    expect(month / 4).toBe(7 * 24 + 6);
  });

  test('has the cost of storage only for the organization', async () => {
    const id = await create('one', { labels: { team: 'ml' } });
    await run({ sandbox: id, from: '2028-02-01T00:00:00Z', to: '2028-02-01T10:00:00Z' });
    const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
    await service.ctx.pool.query(
      'insert into accruals (org_id, volume_id, from_at, to_at, used_mib) values ($1, $2, $3, $4, 2048)',
      [client.org.id, volume.id, '2028-02-01T00:00:00Z', '2028-02-02T00:00:00Z'],
    );
    const whole = await makeBudget(client, { measure: 'cost' });
    expect(whole.used).toBe('0.648');
    const label = { type: 'label', key: 'team', value: 'ml' };
    expect((await makeBudget(client, { measure: 'cost', scope: label })).used).toBe('0.6');
    const { body: summary } = await client.get('/v1/billing/usage');
    expect(summary.total_cents).toBe(65);
  });

  test('counts the time in which sandboxes had the label', async () => {
    clock = '2028-02-11T10:00:00.000000Z';
    const id = await create('one', { labels: { team: 'ml' } });
    const budgetOf = async (value: string) =>
      (await makeBudget(client, { scope: { type: 'label', key: 'team', value } })).used;
    await run({ sandbox: id, from: '2028-02-11T10:00:00Z', to: null });
    clock = '2028-02-11T11:00:00.000000Z';
    await client.patch(`/v1/sandboxes/${id}`, { labels: { team: 'web' } });
    clock = '2028-02-11T13:00:00.000000Z';
    expect([await budgetOf('ml'), await budgetOf('web'), await budgetOf('none')]).toEqual(['1', '2', '0']);
  });

  test('counts the runs that a key started, also after it was revoked', async () => {
    const other = await withKey({});
    const id = await create('one');
    expect((await start(id, other)).status).toBe(200);
    const { rows } = await service.ctx.pool.query<{ started_by_key: string }>(
      'select started_by_key from runs where org_id = $1',
      [client.org.id],
    );
    expect(rows).toEqual([{ started_by_key: other.keyId }]);
    await service.ctx.pool.query('update runs set started_at = $2 where org_id = $1', [
      client.org.id,
      '2028-02-11T10:00:00Z',
    ]);
    const pooled = await create('pooled');
    await run({
      sandbox: pooled,
      from: '2028-02-01T00:00:00Z',
      to: '2028-02-10T00:00:00Z',
      key: other.keyId,
      keySince: '2028-02-09T23:00:00Z',
    });
    const scopeOf = (api_key_id: string) => ({ type: 'api_key', api_key_id });
    const { id: budgetId, used } = await makeBudget(client, { scope: scopeOf(other.keyId) });
    expect(used).toBe('3');
    expect((await makeBudget(client, { scope: scopeOf(client.keyId) })).used).toBe('0');
    await client.delete(`/v1/keys/${other.keyId}`);
    expect((await show(budgetId)).used).toBe('3');
    const request = { name: 'x', scope: scopeOf(other.keyId), measure: 'vcpu_hours', limit: '1' };
    const late = await client.post('/v1/budgets', request);
    expect([late.status, late.body.error.details]).toEqual([400, { field: 'scope.api_key_id' }]);
  });
});

describe('at 100 %', () => {
  const hour = { from: '2028-02-11T11:00:00Z', to: null };

  test('starts are accepted until the last microsecond, and refused from then on, until the next month', async () => {
    const id = await create('one');
    const next = await create('next');
    await run({ sandbox: id, ...hour });
    const { id: budget } = await makeBudget(client, {
      name: 'two hours',
      limit: '2',
      action: 'refuse_starts',
    });
    clock = '2028-02-11T12:59:59.999999Z';
    expect((await start(next)).status).toBe(200);
    expect(await show(budget)).toMatchObject({
      used: '1.999999999722',
      used_percent: 99.99,
      state: 'warning',
    });
    clock = '2028-02-11T13:00:00.000000Z';
    const created = await client.post('/v1/sandboxes', smallRequest('third'), { start: true });
    expect([created.status, created.body.error]).toEqual([
      403,
      {
        code: 'budget_exceeded',
        message: `the budget "two hours" is used up (2 of 2 sandbox_hours): nothing that it covers can be started until ${RENEWS}, unless its limit is raised`,
        details: {
          budget_id: budget,
          name: 'two hours',
          limit: '2',
          used: '2',
          unit: 'sandbox_hours',
          renews_at: RENEWS,
        },
      },
    ]);
    const third = await create('third');
    expect(refusal(await start(third))).toEqual(EXCEEDED);
    expect(await show(budget)).toMatchObject({
      used_percent: 100,
      state: 'exhausted',
      reached: [50, 80, 100],
    });
    clock = '2028-02-29T23:59:59.999999Z';
    expect(refusal(await start(third))).toEqual(EXCEEDED);
    clock = '2028-03-01T00:00:00.000000Z';
    expect((await start(third)).status).toBe(200);
  });

  test('a budget that only warns refuses nothing, and a raised limit or a deletion allows starts at once', async () => {
    const id = await create('one');
    await run({ sandbox: id, ...hour });
    const { id: budget } = await makeBudget(client, { limit: '0.5' });
    const next = await create('next');
    expect((await show(budget)).state).toBe('exhausted');
    expect((await client.post('/v1/sandboxes', smallRequest('warned'), { start: true })).status).toBe(200);
    const change = (fields: object) => client.patch(`/v1/budgets/${budget}`, fields);
    await change({ action: 'stop' });
    expect(refusal(await start(next))).toEqual(EXCEEDED);
    await change({ limit: '1.5' });
    expect((await start(next)).status).toBe(200);
    await change({ limit: '0.5' });
    const last = await create('last');
    expect(refusal(await start(last))).toEqual(EXCEEDED);
    await client.delete(`/v1/budgets/${budget}`);
    expect((await start(last)).status).toBe(200);
  });

  test('only starts that the budget covers are refused, by the label at the start, or the key of the request', async () => {
    const other = await withKey({});
    const id = await create('one', { labels: { team: 'ml' } });
    await run({ sandbox: id, ...hour, key: other.keyId });
    const label = { type: 'label', key: 'team', value: 'ml' };
    await makeBudget(client, { scope: label, limit: '1', action: 'refuse_starts' });
    await makeBudget(client, {
      scope: { type: 'label', key: 'constructor', value: 'x' },
      action: 'refuse_starts',
    });
    const created = (labels: object, by = client) =>
      by.post('/v1/sandboxes', smallRequest(`s-${Math.random()}`, { labels }), { start: true });
    expect(refusal(await created({ team: 'ml', tier: 'x' }))).toEqual(EXCEEDED);
    expect((await created({ team: 'web' })).status).toBe(200);
    const relabelled = await create('relabelled', { labels: { team: 'web' } });
    await client.patch(`/v1/sandboxes/${relabelled}`, { labels: { team: 'ml' } });
    expect(refusal(await start(relabelled))).toEqual(EXCEEDED);
    await client.patch(`/v1/sandboxes/${relabelled}`, { labels: {} });
    expect((await start(relabelled)).status).toBe(200);
    const key = { type: 'api_key', api_key_id: other.keyId };
    await makeBudget(client, { scope: key, limit: '1', action: 'refuse_starts' });
    expect(refusal(await created({}, other))).toEqual(EXCEEDED);
    expect((await created({})).status).toBe(200);
    const stranger = await service.newOrg();
    expect((await created({ team: 'ml' }, stranger)).status).toBe(200);
  });

  test('a key that is narrowed to labels learns no totals', async () => {
    const narrowed = await withKey({
      scopes: ['sandboxes:write'],
      labels: { team: 'web' },
    });
    const id = await create('one');
    await run({ sandbox: id, ...hour });
    const { id: budget } = await makeBudget(client, { name: 'secret', limit: '1', action: 'refuse_starts' });
    const { status, body } = await narrowed.post('/v1/sandboxes', smallRequest('two'), { start: true });
    expect([status, body.error]).toEqual([
      403,
      {
        code: 'budget_exceeded',
        message: `a budget of the organization is used up: nothing that it covers can be started until ${RENEWS}`,
        details: { budget_id: budget, name: null, limit: null, used: null, unit: null, renews_at: RENEWS },
      },
    ]);
    expect(refusal(await narrowed.get('/v1/budgets'))).toEqual([403, 'insufficient_scope']);
  });
});

describe('the price book', () => {
  test('is needed by a budget of cost, and its field is named without', async () => {
    setBook(null);
    const request = { name: 'x', scope: ORGANIZATION, measure: 'cost', limit: '1' };
    const { status, body } = await client.post('/v1/budgets', request);
    expect([status, body.error.details]).toEqual([400, { field: 'measure' }]);
    await makeBudget(client, { measure: 'vcpu_hours' });
  });

  test('that is gone, or has another currency, makes a budget of cost refuse nothing', async () => {
    const id = await create('one');
    await run({ sandbox: id, from: '2028-02-01T00:00:00Z', to: '2028-02-05T00:00:00Z' });
    const { id: budget } = await makeBudget(client, {
      measure: 'cost',
      limit: '5.76',
      action: 'refuse_starts',
    });
    const next = await create('next');
    expect(refusal(await start(next))).toEqual(EXCEEDED);
    const unpriced = { used: null, forecast: null, used_percent: null, reached: [], state: 'unpriced' };
    for (const book of [null, { ...BOOK, currency: 'USD' }]) {
      setBook(book);
      expect(await show(budget)).toMatchObject({ ...unpriced, currency: 'EUR' });
      const free = await create(`free-${book === null ? 'none' : 'usd'}`);
      expect((await start(free)).status).toBe(200);
    }
    setBook({ ...BOOK, prices: { vcpu_hour: '0.01' } });
    expect(await show(budget)).toMatchObject({ used: '0.96', state: 'ok' });
    expect((await start(next)).status).toBe(200);
  });
});
