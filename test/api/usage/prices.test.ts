import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { loadPriceBook, parsePriceBook } from '../../../src/prices/price-book.js';
import { amountOf, project } from '../../../src/prices/price.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const BOOK = {
  currency: 'EUR',
  prices: { vcpu_hour: '0.0504', memory_gib_hour: '0.01', disk_gib_hour: '0', storage_gib_hour: '0.000125' },
  included: { vcpu_hour: '10', storage_gib_hour: '0.5' },
};

let service: TestService;
let clock = '2028-03-11T00:00:00.000000Z';
beforeAll(async () => {
  service = await startTestService({
    worker: false,
    now: () => clock,
    settings: { priceBook: parsePriceBook(JSON.stringify(BOOK), 'book.json') },
  });
});
afterAll(() => service.close());

describe('the summary of a month', () => {
  test('has lines that are rounded one by one and add up, a point a day, and a projection', async () => {
    const client = await service.newOrg();
    const { body } = await client.post('/v1/sandboxes', smallRequest('metered'));
    // 30 hours of 2 vCPUs and 1.5 GiB, from the previous month into this one: 25 of them in March.
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, 2, 1536, 1024, '2028-02-29T19:00:00Z', '2028-03-02T01:00:00Z', 'test')`,
      [client.org.id, uuidv7(), body.id],
    );
    const host = (await client.get('/v1/volumes/default')).body.id;
    await service.ctx.pool.query(
      `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
       values ($1, $2, '2028-03-05T12:00:00Z', '2028-03-05T14:00:00Z', 102400.25)`,
      [client.org.id, host],
    );
    clock = '2028-03-11T00:00:00.000000Z';
    const summary = await client.get('/v1/billing/usage');
    expect(summary.body).toEqual({
      period_start: '2028-03-01T00:00:00Z',
      period_end: '2028-04-01T00:00:00Z',
      line_items: [
        // (50 - 10) x 5.04 = 201.6; 37.5 x 1 = 37.5; nothing; (200.0005 - 0.5) x 0.0125 = 2.49
        { name: 'vcpu', quantity: 50, unit: 'vcpu_hour', amount_cents: 202 },
        { name: 'memory_gib', quantity: 37.5, unit: 'memory_gib_hour', amount_cents: 38 },
        { name: 'disk_gib', quantity: 25, unit: 'disk_gib_hour', amount_cents: 0 },
        { name: 'storage_gib', quantity: 200.00048828125, unit: 'storage_gib_hour', amount_cents: 2 },
      ],
      total_cents: 242,
      // 155 vCPU-hours and 116.25 and 620.0015... GiB-hours, of which 10 and 0.5 are included: 731 + 116 + 8
      projected_spend_cents: 855,
      currency: 'EUR',
      minor_unit_digits: 2,
      daily: [
        { date: '2028-03-01T00:00:00Z', metric: 'vcpu', quantity: 48 },
        { date: '2028-03-01T00:00:00Z', metric: 'memory_gib', quantity: 36 },
        { date: '2028-03-01T00:00:00Z', metric: 'disk_gib', quantity: 24 },
        { date: '2028-03-02T00:00:00Z', metric: 'vcpu', quantity: 2 },
        { date: '2028-03-02T00:00:00Z', metric: 'memory_gib', quantity: 1.5 },
        { date: '2028-03-02T00:00:00Z', metric: 'disk_gib', quantity: 1 },
        { date: '2028-03-05T00:00:00Z', metric: 'storage_gib', quantity: 200.00048828125 },
      ],
      storage_gib: null,
    });

    const february = (await client.get('/v1/billing/usage', { month: '2028-02' })).body;
    expect([february.line_items[0], february.total_cents, february.projected_spend_cents]).toEqual([
      { name: 'vcpu', quantity: 10, unit: 'vcpu_hour', amount_cents: 0 },
      8,
      8,
    ]);

    await setQuotas(service.ctx.pool, client.org.id, { included_vcpu_hours: 50 }, operator('test'));
    const included = (await client.get('/v1/billing/usage')).body;
    expect([included.line_items[0].amount_cents, included.total_cents]).toEqual([0, 40]);

    const response = await fetch(`${service.url}/v1/billing/usage`, {
      headers: { authorization: `Bearer ${client.key}`, accept: 'text/csv' },
    });
    expect((await response.text()).split('\r\n').slice(0, 2)).toEqual([
      'period_start,period_end,name,quantity,unit,amount_cents,currency',
      '2028-03-01T00:00:00Z,2028-04-01T00:00:00Z,vcpu,50,vcpu_hour,0,EUR',
    ]);
  });

  test.each(['2028-13', '2028-3', 'now', '', '2028-04', '0000-01', '2028-03-01'])(
    'refuses month=%s',
    async (month) => {
      const client = await service.newOrg();
      const { status, body } = await client.get('/v1/billing/usage', { month });
      expect([status, body.error.details]).toEqual([400, { parameter: 'month' }]);
    },
  );

  test('without a price book has the quantities and costs nothing', async () => {
    const free = await startTestService({ worker: false });
    try {
      const { body } = await (await free.newOrg()).get('/v1/billing/usage');
      expect([body.currency, body.total_cents, body.line_items.length]).toEqual([null, 0, 4]);
    } finally {
      await free.close();
    }
  });
});

test('an amount is the exact one rounded to the nearest minor unit, halves up', () => {
  const amount = fc
    .tuple(fc.bigInt(0n, 10n ** 9n - 1n), fc.bigInt(0n, 10n ** 12n - 1n), fc.nat(12))
    .map(([whole, fraction, digits]) => {
      const text = fraction.toString().padStart(12, '0').slice(0, digits);
      return digits === 0 ? `${whole}` : `${whole}.${text}`;
    });
  fc.assert(
    fc.property(amount, amount, fc.bigInt(0n, 10n ** 24n), fc.nat(4), (price, included, quantity, digits) => {
      const text = {
        currency: 'EUR',
        minor_unit_digits: digits,
        prices: { memory_gib_hour: price },
        included: { memory_gib_hour: included },
      };
      const got = amountOf(parsePriceBook(JSON.stringify(text), 'x'), 'memory_gib_hour', quantity);
      // The computation uses units of 10^-12, which leave no remainder: an hour of a GiB is 1024 x 3.6e9
      // MiB-microseconds.
      const picos = (decimal: string) => {
        const [whole = '', fraction = ''] = decimal.split('.');
        return BigInt(whole) * 10n ** 12n + BigInt(fraction.padEnd(12, '0'));
      };
      const unit = 1024n * 3_600_000_000n;
      const charged = quantity * 10n ** 12n - picos(included) * unit;
      const numerator = charged <= 0n ? 0n : charged * picos(price) * 10n ** BigInt(digits);
      const denominator = unit * 10n ** 24n;
      const rest = numerator - got * denominator;
      expect(rest * 2n < denominator && rest * 2n >= -denominator).toBe(true);
    }),
    { numRuns: 2_000 },
  );
});

test('a projection is never below the spend so far', () => {
  expect(project(100n, 1n, 3n)).toBe(300n);
  expect(project(1n, 2n, 3n)).toBe(2n);
  expect(project(7n, 0n, 3n)).toBe(7n);
  expect(project(7n, 5n, 3n)).toBe(7n);
});

describe('a price book', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-prices-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'book.json');

  test.each([
    ['', 'not valid JSON'],
    ['[]', 'the body must be an object'],
    ['{"currency":"EUR"}', 'prices is required'],
    ['{"currency":"eur","prices":{}}', 'currency must match pattern'],
    [
      '{"currency":"EUR","prices":{},"price":{}}',
      'no field "price"; there are currency, minor_unit_digits, prices, included',
    ],
    [
      '{"currency":"EUR","prices":{"vcpu_hr":"1"}}',
      'no price "vcpu_hr" in "prices"; there are vcpu_hour, memory_gib_hour, disk_gib_hour, storage_gib_hour',
    ],
    [
      '{"currency":"EUR","prices":{},"included":{"cpu":"1"}}',
      'no price "cpu" in "included"; there are vcpu_hour',
    ],
    ['{"currency":"EUR","prices":{"vcpu_hour":0.1}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","prices":{"vcpu_hour":"-1"}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","prices":{"vcpu_hour":"1e3"}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","prices":{"vcpu_hour":"1,5"}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","prices":{"vcpu_hour":"0.0000000000001"}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","prices":{"vcpu_hour":"1\\n"}}', 'text such as "0.0504"'],
    ['{"currency":"EUR","minor_unit_digits":5,"prices":{}}', 'minor_unit_digits'],
    ['{"currency":"EUR","prices":{"__proto__":"1"}}', '__proto__'],
    ['{"currency":"ZZZ","prices":{}}', 'no currency "ZZZ"'],
    [`"${'x'.repeat(70_000)}"`, 'larger than'],
  ])('%#: %.60s is refused with the reason', (text, reason) => {
    writeFileSync(file, text);
    expect(() => loadPriceBook(file)).toThrow(reason);
    expect(() => loadPriceBook(file)).toThrow(file);
  });

  test('that is missing or not a file is refused', () => {
    expect(() => loadPriceBook(join(directory, 'none'))).toThrow('ENOENT');
    expect(() => loadPriceBook(directory)).toThrow('not a regular file');
    const pipe = join(directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    expect(() => loadPriceBook(pipe)).toThrow('not a regular file');
  });

  test.each([
    ['EUR', 2, 504n],
    ['JPY', 0, 5n],
    ['KWD', 3, 5_040n],
  ])('in %s has amounts in units of its %i digits by default', (currency, digits, amount) => {
    const book = parsePriceBook(JSON.stringify({ currency, prices: { vcpu_hour: '5.04' } }), 'book.json');
    expect(book.minorUnitDigits).toBe(digits);
    expect(amountOf(book, 'vcpu_hour', 3_600_000_000n)).toBe(amount);
    const other = { currency, minor_unit_digits: 1, prices: { vcpu_hour: '5.04' } };
    expect(amountOf(parsePriceBook(JSON.stringify(other), 'book.json'), 'vcpu_hour', 3_600_000_000n)).toBe(
      50n,
    );
  });
});
