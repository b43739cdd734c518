import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { addMillis, type Instant } from '../../../src/lib/instant.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import { enforceBudgets } from '../../../src/sandboxes/lifecycle/stop-over-budget.js';
import { insertRun, makeBudget, ORGANIZATION } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const NOON = '2028-02-11T12:00:00.000000Z';
const neverStops = new AbortController().signal;

let service: TestService;
let beside: TestService;
let client: Client;
let sandbox: string;
let clock: Instant = NOON;
beforeAll(async () => {
  const now = () => clock;
  service = await startTestService({ worker: false, now });
  beside = await startTestService({ worker: false, now, beside: service });
});
afterAll(async () => {
  await beside.close();
  await service.close();
});
beforeEach(async () => {
  clock = NOON;
  client = await service.newOrg();
  sandbox = (await client.post('/v1/sandboxes', smallRequest('one'))).body.id;
});

const open = (from: Instant) => insertRun(service.ctx.pool, client, { sandbox, from, to: null });

async function checkAt(at: Instant, by = service): Promise<void> {
  clock = at;
  await enforceBudgets(by.ctx, neverStops);
}

async function reached(): Promise<[number, string, string][]> {
  const { body } = await client.get('/v1/events', { event_type: 'budget_threshold_reached', limit: 100 });
  return body.data
    .toReversed()
    .map(({ payload }: any) => [payload.threshold, payload.used, payload.period_start.slice(0, 7)]);
}

test('each threshold has one event, in order, with the facts of the budget', async () => {
  await open('2028-02-11T11:00:00Z');
  const budget = await makeBudget(client, { name: 'ten', limit: '10', thresholds: [10, 25, 100, 120] });
  await checkAt('2028-02-11T12:00:00.000000Z');
  await checkAt('2028-02-11T12:00:06.000000Z');
  const { body } = await client.get('/v1/events', { event_type: 'budget_threshold_reached' });
  expect(body.data).toMatchObject([
    {
      category: 'billing',
      actor: {
        kind: 'system',
        code: 'budgets',
      },
      timestamp: '2028-02-11T12:00:00Z',
      payload: {
        budget_id: budget.id,
        name: 'ten',
        scope: ORGANIZATION,
        measure: 'sandbox_hours',
        currency: null,
        threshold: 10,
        limit: '10',
        used: '1',
        action: 'warn',
        period_start: '2028-02-01T00:00:00Z',
        period_end: '2028-03-01T00:00:00Z',
      },
    },
  ]);
  // One check that comes late writes all that were reached meanwhile.
  await checkAt('2028-02-12T12:00:00.000000Z');
  await checkAt('2028-02-13T12:00:00.000000Z');
  expect((await reached()).map(([threshold]) => threshold)).toEqual([10, 25, 100, 120]);
});

test('a budget is not checked before its time, and a changed one at once', async () => {
  await open('2028-02-11T11:00:00Z');
  const { id } = await makeBudget(client, { limit: '10', thresholds: [50] });
  await checkAt('2028-02-11T12:00:00.000000Z');
  await client.patch(`/v1/budgets/${id}`, { limit: '2' });
  await checkAt('2028-02-11T12:00:00.000001Z');
  expect(await reached()).toEqual([[50, '1.000000000277', '2028-02']]);
});

test('several workers write each event once', async () => {
  await open('2028-02-11T10:00:00Z');
  for (let count = 0; count < 10; count += 1) await makeBudget(client, { limit: '2' });
  for (let round = 0; round < 5; round += 1) {
    clock = addMillis(clock, 60_000);
    await Promise.all([service, beside, service, beside].map(({ ctx }) => enforceBudgets(ctx, neverStops)));
  }
  const events = await reached();
  const count = (threshold: number) => events.filter(([each]) => each === threshold).length;
  expect([count(50), count(80), count(100), events.length]).toEqual([10, 10, 10, 30]);
});

test('a failure between the notice and the event loses none and repeats none, and delays no other budget', async () => {
  const { pool } = service.ctx;
  await open('2028-02-11T11:00:00Z');
  await makeBudget(client, { name: 'a', limit: '1' });
  const neighbour = await service.newOrg();
  await makeBudget(neighbour, { name: 'b', limit: '1' });
  await pool.query(
    `create function fail() returns trigger language plpgsql as $$ begin
       if new.org_id = '${client.org.id}' then raise exception 'a test'; end if; return new; end $$;
     create trigger fail before insert on unsealed_events for each row execute function fail()`,
  );
  try {
    await checkAt('2028-02-11T12:30:00.000000Z');
  } finally {
    await pool.query('drop trigger fail on unsealed_events; drop function fail()');
  }
  expect(service.logs.join('\n')).toContain('cannot check a budget');
  expect(await reached()).toEqual([]);
  const { rows } = await pool.query<{ checked_until: string }>(
    'select checked_until from budgets where org_id = $1',
    [neighbour.org.id],
  );
  expect(rows).toEqual([{ checked_until: '2028-02-11T12:30:00.000000Z' }]);
  await checkAt('2028-02-11T12:30:30.000000Z');
  expect(await reached()).toEqual([]);
  await checkAt('2028-02-11T12:31:00.000000Z');
  expect((await reached()).map(([threshold]) => threshold)).toEqual([50, 80, 100]);
});

test('use in the last microseconds of a month counts there, also when the next check is in the next month', async () => {
  await open('2028-02-29T23:00:00Z');
  await makeBudget(client, { limit: '1', thresholds: [90, 100] });
  await checkAt('2028-02-29T23:59:58.000000Z');
  expect(await reached()).toEqual([[90, '0.999444444444', '2028-02']]);
  await checkAt('2028-03-01T00:00:04.000000Z');
  expect(await reached()).toEqual([
    [90, '0.999444444444', '2028-02'],
    [100, '1', '2028-02'],
  ]);
  await checkAt('2028-03-01T02:00:00.000000Z');
  await checkAt('2028-03-01T03:00:00.000000Z');
  expect((await reached()).slice(2)).toEqual([
    [90, '2', '2028-03'],
    [100, '2', '2028-03'],
  ]);
  const { rows } = await service.ctx.pool.query(
    'select distinct month::text from budget_notices where org_id = $1',
    [client.org.id],
  );
  expect(rows).toEqual([{ month: '2028-03-01' }]);
});

test('one microsecond less does not reach the limit of a month', async () => {
  await open('2028-02-29T23:00:00.000001Z');
  await makeBudget(client, { limit: '1', thresholds: [100] });
  await checkAt('2028-03-01T00:00:04.000000Z');
  expect(await reached()).toEqual([]);
});

test('a raised limit is reached anew, and a lower one repeats nothing', async () => {
  await open('2028-02-11T11:00:00Z');
  const { id } = await makeBudget(client, { limit: '1', thresholds: [50, 100] });
  await checkAt('2028-02-11T12:00:10.000000Z');
  await client.patch(`/v1/budgets/${id}`, { limit: '2' });
  await checkAt('2028-02-11T12:00:20.000000Z');
  expect((await reached()).map(([threshold]) => threshold)).toEqual([50, 100]);
  await checkAt('2028-02-11T13:00:00.000000Z');
  await client.patch(`/v1/budgets/${id}`, { limit: '0.1' });
  await checkAt('2028-02-11T13:00:10.000000Z');
  expect((await reached()).map(([threshold]) => threshold)).toEqual([50, 100, 100]);
});

test('a budget of cost without its price book has no events until it is priced again', async () => {
  const setBook = (book: object | null) =>
    Object.assign(service.ctx.settings, {
      priceBook: book && parsePriceBook(JSON.stringify(book), 'book.json'),
    });
  const book = { currency: 'EUR', prices: { vcpu_hour: '1' } };
  setBook(book);
  await open('2028-02-11T11:00:00Z');
  await makeBudget(client, { measure: 'cost', limit: '1', thresholds: [100] });
  setBook(null);
  await checkAt('2028-02-11T12:00:10.000000Z');
  expect(await reached()).toEqual([]);
  setBook(book);
  await checkAt('2028-02-11T12:00:20.000000Z');
  expect(await reached()).toEqual([[100, '1.005555555556', '2028-02']]);
});
