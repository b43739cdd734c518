import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { instantFromMicros, microsOf } from '../../../src/lib/instant.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import { setQuotas } from '../../../src/quotas/set.js';
import type { Client } from '../../support/client.js';
import { FOCUS_CATEGORY_OF, FOCUS_MANDATORY, FOCUS_RULES, FOCUS_UNIT } from '../../support/focus-1-4.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const HOUR = 3_600_000_000n;
const DAY = 24n * HOUR;
const MONTH = { since: '2028-02-01', until: '2028-03-01' };
const BEGIN = microsOf('2028-02-01T00:00:00.000000Z');
const BOOK = {
  currency: 'EUR',
  prices: {
    vcpu_hour: '0.0504',
    memory_gib_hour: '0.0162',
    disk_gib_hour: '0.000108',
    storage_gib_hour: '0.7',
  },
  included: { memory_gib_hour: '0.333333333333' },
};

type Row = Record<string, string>;

let service: TestService;
let clock = '2028-03-02T12:00:00.000000Z';
beforeAll(async () => {
  service = await startTestService({
    worker: false,
    now: () => clock,
    settings: { priceBook: parsePriceBook(JSON.stringify(BOOK), 'book.json') },
  });
});
afterAll(() => service.close());

async function report(
  client: Client,
  kind: 'sandbox' | 'storage',
  query: Record<string, string> = MONTH,
): Promise<Row[]> {
  const answer = await client.get(`/v1/billing/usage/${kind}`, { ...query, format: 'focus' });
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/csv; charset=utf-8']);
  return parse(answer.text, { columns: true, record_delimiter: '\r\n' });
}

interface Used {
  owner: string;
  from: bigint;
  length: bigint;
  /** vCPUs, memory and disk of a run. */
  resources: readonly [number, number, number];
}

async function insertRun(client: Client, { owner, from, length, resources }: Used): Promise<void> {
  await service.ctx.pool.query(
    `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
     values ($1, $2, $3, $4, $5, $6, $7, $8, 'test')`,
    [client.org.id, uuidv7(), owner, ...resources, instantFromMicros(from), instantFromMicros(from + length)],
  );
}

async function insertAccrual(
  client: Client,
  volume: string,
  from: bigint,
  length: bigint,
  mib: string,
): Promise<void> {
  await service.ctx.pool.query(
    'insert into accruals (org_id, volume_id, from_at, to_at, used_mib) values ($1, $2, $3, $4, $5)',
    [client.org.id, volume, instantFromMicros(from), instantFromMicros(from + length), mib],
  );
}

/** A quotient of whole numbers, for arithmetic without rounding. */
interface Exact {
  n: bigint;
  d: bigint;
}
const exact = (text: string): Exact => {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) throw new Error(`not a decimal: ${text}`);
  const [, sign, whole, fraction = ''] = match;
  return { n: BigInt(`${sign}${whole}${fraction}`), d: 10n ** BigInt(fraction.length) };
};
const plus = (a: Exact, b: Exact): Exact => ({ n: a.n * b.d + b.n * a.d, d: a.d * b.d });
const times = (a: Exact, b: Exact): Exact => ({ n: a.n * b.n, d: a.d * b.d });
const isEqual = (a: Exact, b: Exact) => a.n * b.d === b.n * a.d;
const sum = (rows: readonly Row[], column: string) =>
  rows.reduce((total, row) => plus(total, exact(row[column]!)), { n: 0n, d: 1n });

/** Checks a row against the facts of the specification. */
function expectConforms(row: Row): void {
  for (const [column, rule] of Object.entries(FOCUS_RULES)) {
    const value = row[column]!;
    const where = `${column} of ${JSON.stringify(row)}`;
    if (value === '') expect(rule.nullable, where).toBe(true);
    if (rule.usageOnly) expect(value !== '', where).toBe(row['ChargeCategory'] === 'Usage');
    if (value === '') continue;
    if (rule.values) expect(rule.values, where).toContain(value);
    if (rule.type === 'decimal')
      expect(value, where).toMatch(rule.unsigned ? /^\d+(\.\d+)?$/ : /^-?\d+(\.\d+)?$/);
    if (rule.type === 'time') expect(value, where).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    if (rule.type === 'json') {
      const pairs = Object.values(JSON.parse(value) as Record<string, unknown>);
      expect(
        pairs.every((each) => typeof each === 'string' || typeof each === 'number'),
        where,
      ).toBe(true);
    }
  }
  expect(FOCUS_CATEGORY_OF[row['ServiceSubcategory']!]).toBe(row['ServiceCategory']);
  expect(row['BillingCurrency']).toMatch(/^[A-Z]{3}$/);
  expect(row['BilledCost']).toBe(row['EffectiveCost']);
  expect(row['ContractedCost']).toBe(row['ListCost']);
  expect([row['ResourceType'] === '', row['ResourceId'] === '']).toEqual(
    Array(2).fill(row['ChargeCategory'] !== 'Usage'),
  );
  if (row['ChargeCategory'] !== 'Usage') return;
  for (const unit of ['PricingUnit', 'ConsumedUnit']) expect(row[unit]).toMatch(FOCUS_UNIT);
  const product = times(exact(row['ListUnitPrice']!), exact(row['PricingQuantity']!));
  expect(isEqual(exact(row['ListCost']!), product)).toBe(true);
  expect(row['BilledCost']).toBe(row['x_Included'] === 'true' ? '0' : row['ListCost']);
}

test('a report has every mandatory column, and a row for each sandbox, day and meter', async () => {
  const client = await service.newOrg();
  const made = await client.post('/v1/sandboxes', {
    ...smallRequest('web'),
    labels: { team: 'ml', env: '=1+1' },
  });
  const owner = made.body.id;
  await insertRun(client, { owner, from: BEGIN + 23n * HOUR, length: 2n * HOUR, resources: [2, 1536, 0] });
  const answer = await client.get('/v1/billing/usage/sandbox', { ...MONTH, format: 'focus' });
  const header = answer.text.slice(0, answer.text.indexOf('\r\n')).split(',');
  expect(header).toEqual(expect.arrayContaining(FOCUS_MANDATORY));
  expect(header.filter((column) => !column.startsWith('x_'))).toEqual(Object.keys(FOCUS_RULES));
  expect(
    Object.entries(FOCUS_RULES)
      .filter(([, { level }]) => level === 'mandatory')
      .map(([column]) => column),
  ).toEqual(FOCUS_MANDATORY);

  const rows = await report(client, 'sandbox');
  rows.forEach(expectConforms);
  const [first] = rows;
  expect(first).toMatchObject({
    BillingAccountId: client.org.id,
    BillingPeriodStart: '2028-02-01T00:00:00Z',
    BillingPeriodEnd: '2028-03-01T00:00:00Z',
    ChargePeriodStart: '2028-02-01T00:00:00Z',
    ChargePeriodEnd: '2028-02-02T00:00:00Z',
    BilledCost: '0.1008',
    ConsumedQuantity: '7200',
    ConsumedUnit: 'Core-Seconds',
    PricingQuantity: '2',
    PricingUnit: 'Core-Hours',
    ListUnitPrice: '0.0504',
    ResourceId: owner,
    ResourceName: 'web',
    SkuId: 'vcpu_hour',
    Tags: '{"env":"=1+1","team":"ml"}',
  });
  expect(
    rows.map((row) => [
      row['ChargePeriodStart']!.slice(5, 10),
      row['SkuId'],
      row['PricingQuantity'],
      row['x_Included'],
      row['ChargeCategory'],
    ]),
  ).toEqual([
    ['02-01', 'vcpu_hour', '2', 'false', 'Usage'],
    ['02-01', 'memory_gib_hour', '1.166666666667', 'false', 'Usage'],
    ['02-01', 'memory_gib_hour', '0.333333333333', 'true', 'Usage'],
    ['02-02', 'vcpu_hour', '2', 'false', 'Usage'],
    ['02-02', 'memory_gib_hour', '1.5', 'false', 'Usage'],
    // 20.16 and 4.32 cents become 20 and 4.
    ['02-01', '', '', 'false', 'Adjustment'],
    ['02-01', '', '', 'false', 'Adjustment'],
  ]);
  expect(rows.at(-2)).toMatchObject({ BilledCost: '-0.0016', ChargePeriodEnd: '2028-03-01T00:00:00Z' });
});

test('names are safe in a spreadsheet, labels count as on the day, and a past row never changes', async () => {
  const client = await service.newOrg();
  const volume = (await client.post('/v1/volumes', { name: 'data', labels: { kept: 'yes' } })).body.id;
  const { body } = await client.post('/v1/sandboxes', { ...smallRequest('a'), labels: { team: 'before' } });
  await service.ctx.pool.query('update sandboxes set name = $2 where id = $1', [body.id, '=cmd()']);
  await service.ctx.pool.query(
    `insert into label_periods values ($1, 'team', 'after', $2, '2028-02-03T12:00:00Z', 'infinity')`,
    [client.org.id, body.id],
  );
  await insertRun(client, { owner: body.id, from: BEGIN + DAY, length: 2n * DAY, resources: [1, 0, 0] });
  await insertAccrual(client, volume, BEGIN + DAY, DAY, '1024.5');
  const rows = await report(client, 'sandbox');
  expect(rows.filter(({ SkuId }) => SkuId).map(({ ResourceName, Tags }) => [ResourceName, Tags])).toEqual([
    ["'=cmd()", '{"team":"before"}'],
    ["'=cmd()", '{"team":"after"}'],
  ]);
  const [stored] = await report(client, 'storage');
  expect(stored).toMatchObject({ ResourceType: 'Volume', ResourceName: 'data', Tags: '{"kept":"yes"}' });

  const [alone] = await report(client, 'sandbox', { since: '2028-02-03', until: '2028-02-04' });
  expect(alone).toEqual(rows[1]);
  const filtered = await report(client, 'sandbox', { ...MONTH, sandbox_id: body.id });
  expect(filtered).toEqual(rows.filter(({ ChargeCategory }) => ChargeCategory === 'Usage'));
});

describe('refusals', () => {
  test.each([
    ['since', { since: '2028-02-01T00:00:00.5Z', until: '2028-03-01' }],
    ['until', { since: '2028-02-01', until: '2028-02-01T12:00:00Z' }],
    ['format', { ...MONTH, format: 'parquet' }],
  ])('a wrong %s is named', async (name, query) => {
    const client = await service.newOrg();
    const { status, body } = await client.get('/v1/billing/usage/sandbox', { format: 'focus', ...query });
    expect([status, body.error.code, body.error.details]).toEqual([
      400,
      'invalid_request',
      { parameter: name },
    ]);
    expect(body.error.message).toMatch(name === 'format' ? /json.*csv.*focus/ : /start of a UTC day/);
  });

  test('reports by label and the summary of a month have no such format', async () => {
    const client = await service.newOrg();
    for (const [path, query] of [
      ['/v1/billing/usage/labels', { key: 'team' }],
      ['/v1/billing/usage', {}],
    ] as const) {
      const { status, body } = await client.get(path, { ...query, format: 'focus' });
      expect([status, body.error.details]).toEqual([400, { parameter: 'format' }]);
    }
  });

  test('without a price book there is no currency', async () => {
    const bare = await startTestService({ worker: false });
    const { status, body } = await (
      await bare.newOrg()
    ).get('/v1/billing/usage/storage', { format: 'focus' });
    expect([status, body.error.message]).toEqual([400, expect.stringContaining('--price-book')]);
    await bare.close();
  });
});

/** An oracle: the amount of a month in cents, by quotients of whole numbers. */
function centsOf(micros: bigint, unit: bigint, included: string, price: string): bigint {
  const beyond = plus({ n: micros, d: unit * HOUR }, times(exact(included), { n: -1n, d: 1n }));
  if (beyond.n <= 0n) return 0n;
  const { n, d } = times(times(beyond, exact(price)), { n: 100n, d: 1n });
  return (2n * n + d) / (2n * d);
}

test('a report shows nothing of another organization', async () => {
  const [victim, intruder] = [await service.newOrg(), await service.newOrg()];
  const owner = (await victim.post('/v1/sandboxes', smallRequest('canary'))).body.id;
  await insertRun(victim, { owner, from: BEGIN, length: HOUR, resources: [1, 1024, 1024] });
  const volume = (await victim.get('/v1/volumes/default')).body.id;
  await insertAccrual(victim, volume, BEGIN, HOUR, '1024');
  expect((await report(victim, 'storage')).length).toBeGreaterThan(0);
  expect(await report(intruder, 'storage')).toEqual([]);
  expect(await report(intruder, 'sandbox')).toEqual([]);
  expect(await report(intruder, 'sandbox', { ...MONTH, sandbox_id: owner })).toEqual([]);
});

test('the charges of a month add up to its summary to the last digit, and to the used quantities', async () => {
  const client = await service.newOrg();
  const owners: string[] = [];
  for (const name of ['a', 'b', 'c'])
    owners.push((await client.post('/v1/sandboxes', smallRequest(name))).body.id);
  const volume = (await client.get('/v1/volumes/default')).body.id;
  const offset = fc.oneof(fc.constantFrom(0n, DAY - 1n, DAY, 28n * DAY), fc.bigInt(0n, 28n * DAY));
  const length = fc.oneof(fc.constantFrom(1n, HOUR, DAY), fc.bigInt(1n, 2n * DAY));
  const run = fc.record({
    owner: fc.constantFrom(...owners),
    from: offset.map((at) => BEGIN + at),
    length,
    resources: fc.tuple(fc.integer({ min: 0, max: 64 }), fc.nat(300_000), fc.nat(3_000_000)),
  });
  const accrual = fc.tuple(offset, fc.bigInt(1n, 2n * DAY), fc.nat(400_000), fc.nat(9999));
  await fc.assert(
    fc.asyncProperty(
      fc.array(run, { maxLength: 8 }),
      fc.uniqueArray(accrual, { maxLength: 3, selector: ([from]) => from }),
      fc.nat(200),
      async (runs, accruals, included) => {
        await service.ctx.pool.query('delete from runs where org_id = $1', [client.org.id]);
        await service.ctx.pool.query('delete from accruals where org_id = $1', [client.org.id]);
        for (const each of runs) await insertRun(client, each);
        for (const [from, lasting, mib, fraction] of accruals) {
          await insertAccrual(
            client,
            volume,
            BEGIN + from,
            lasting,
            `${mib}.${String(fraction).padStart(4, '0')}`,
          );
        }
        await setQuotas(service.ctx.pool, client.org.id, { included_vcpu_hours: included }, operator('test'));

        const end = BEGIN + 29n * DAY;
        const inMonth = (from: bigint, lasting: bigint) =>
          (from + lasting < end ? from + lasting : end) - from;
        const used = [0n, 0n, 0n];
        for (const each of runs) {
          each.resources.forEach((size, index) => {
            used[index]! += inMonth(each.from, each.length) * BigInt(size);
          });
        }
        const expected = [
          centsOf(used[0]!, 1n, String(included), BOOK.prices.vcpu_hour),
          centsOf(used[1]!, 1024n, BOOK.included.memory_gib_hour, BOOK.prices.memory_gib_hour),
          centsOf(used[2]!, 1024n, '0', BOOK.prices.disk_gib_hour),
        ];
        const compute = await report(client, 'sandbox');
        const storage = await report(client, 'storage');
        [...compute, ...storage].forEach(expectConforms);

        const summary = (await client.get('/v1/billing/usage', { month: '2028-02' })).body;
        expect(
          summary.line_items.slice(0, 3).map((line: { amount_cents: number }) => line.amount_cents),
        ).toEqual(expected.map(Number));
        const billed = sum([...compute, ...storage], 'BilledCost');
        expect(isEqual(times(billed, { n: 100n, d: 1n }), { n: BigInt(summary.total_cents), d: 1n })).toBe(
          true,
        );

        // Consumed quantities have no rounding: they add up to the microseconds of the runs.
        for (const [index, SkuId] of ['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour'].entries()) {
          const rows = compute.filter((row) => row['SkuId'] === SkuId);
          expect(isEqual(sum(rows, 'ConsumedQuantity'), { n: used[index]!, d: 1_000_000n })).toBe(true);
          const keys = rows.map((row) =>
            [row['ResourceId'], row['ChargePeriodStart'], row['x_Included']].join(),
          );
          expect(new Set(keys).size).toBe(keys.length);
        }
        // The included hours are used up first and wholly, to half a microsecond for each row of one day.
        const free = sum(
          compute.filter((row) => row['SkuId'] === 'vcpu_hour' && row['x_Included'] === 'true'),
          'ConsumedQuantity',
        );
        const most = BigInt(included) * HOUR < used[0]! ? BigInt(included) * HOUR : used[0]!;
        const difference = Number(free.n * 1_000_000n - most * free.d) / Number(free.d);
        expect(Math.abs(difference)).toBeLessThanOrEqual(owners.length);
      },
    ),
    { numRuns: 20 },
  );
});

test('the charges of a year are sent while they are read', async () => {
  const client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('long'));
  const from = microsOf('2027-03-01T00:00:00.000000Z');
  await insertRun(client, { owner: body.id, from, length: 366n * DAY, resources: [1, 1024, 0] });
  const rows = await report(client, 'sandbox', { since: '2027-03-01', until: '2028-03-01' });
  const days = rows.filter((row) => row['SkuId'] === 'vcpu_hour').map((row) => row['ChargePeriodStart']);
  expect(days.length).toBe(366);
  expect(days).toEqual([...new Set(days)].toSorted((a, b) => (a! < b! ? -1 : 1)));
  const months = new Set(rows.map((row) => row['BillingPeriodStart']));
  expect(months.size).toBe(12);
  let cents = 0;
  for (const month of months)
    cents += (await client.get('/v1/billing/usage', { month: month!.slice(0, 7) })).body.total_cents;
  expect(isEqual(times(sum(rows, 'BilledCost'), { n: 100n, d: 1n }), { n: BigInt(cents), d: 1n })).toBe(true);
});
