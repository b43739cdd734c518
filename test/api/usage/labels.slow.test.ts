import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { addMillis, instantFromMicros, microsOf, type Instant } from '../../../src/lib/instant.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import type { Client } from '../../support/client.js';
import { exactCosts, type UsedByDay } from '../../support/cost-oracle.js';
import { exact, isEqual, isLess, minus, plus, ZERO, type Exact } from '../../support/exact.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const DAY = 86_400_000_000n;
const BEGIN = '2028-02-27T00:00:00.000000Z';

let service: TestService;
let clock = BEGIN;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => clock });
});
afterAll(() => service.close());

async function insertRun(
  client: Client,
  sandbox: string,
  from: Instant,
  to: Instant | null,
  weights = [2, 3, 5],
) {
  await service.ctx.pool.query(
    `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [client.org.id, uuidv7(), sandbox, ...weights, from, to, to && 'test'],
  );
}

/** The service reads its price book for each answer. */
function setPrices(prices: readonly string[], included: readonly string[] = ['0', '0', '0']): void {
  const byMetric = ([vcpu_hour, memory_gib_hour, disk_gib_hour]: readonly string[]) => ({
    vcpu_hour,
    memory_gib_hour,
    disk_gib_hour,
  });
  const book = { currency: 'EUR', prices: byMetric(prices), included: byMetric(included) };
  Object.assign(service.ctx.settings, { priceBook: parsePriceBook(JSON.stringify(book), 'book.json') });
}
const price = fc.constantFrom('0', '0.0504', '1', '123.000000000007');

const at = (offset: bigint): Instant => instantFromMicros(microsOf(BEGIN) + offset);
/** A hundred and twenty hours, each with its start, its middle and its last microsecond. */
const moment = fc
  .tuple(fc.nat(119), fc.constantFrom(0n, 1_800_000_000n, 3_599_999_999n))
  .map(([hour, rest]) => BigInt(hour) * 3_600_000_000n + rest);
const labels = fc.constantFrom<Record<string, string>>(
  {},
  { team: 'a' },
  { team: 'b' },
  { team: 'a', tier: 'x' },
  { team: 'unlabelled', tier: 'x' },
  { tier: 'y' },
);

interface Model {
  from: bigint;
  to: bigint;
  weights: number[];
  sandbox: string;
  /** In time order; the first period has no start. */
  periods: { from: bigint; labels: Record<string, string> }[];
}

/** Splits each run at midnights, label changes and its end. */
function* piecesOf({ from, to, periods }: Model): Generator<[bigint, bigint, Record<string, string>]> {
  let position = from;
  while (position < to) {
    const current = periods.findLast((period) => period.from <= position)!;
    const next = periods.find((period) => period.from > position)?.from ?? to;
    const midnight = (position / DAY + 1n) * DAY;
    const end = [next, midnight, to].reduce((a, b) => (a < b ? a : b));
    yield [position, end, current.labels];
    position = end;
  }
}

function seconds(micros: bigint): number {
  const text = micros.toString().padStart(7, '0');
  return Number(`${text.slice(0, -6)}.${text.slice(-6)}`);
}

function sums(models: Model[], keyOf: (model: Model, labels: Record<string, string>) => string | undefined) {
  return new Map([...usedBy(models, keyOf)].map(([key, values]) => [key, values.map(seconds)]));
}

/** By day and key. */
function usedBy(
  models: Model[],
  keyOf: (model: Model, labels: Record<string, string>) => string | undefined,
): Map<string, bigint[]> {
  const totals = new Map<string, bigint[]>();
  for (const model of models) {
    for (const [from, to, worn] of piecesOf(model)) {
      const key = keyOf(model, worn);
      if (key === undefined) continue;
      const name = `${at(from).slice(0, 10)} ${key}`;
      const before = totals.get(name) ?? [0n, 0n, 0n];
      totals.set(
        name,
        model.weights.map((weight, index) => before[index]! + BigInt(weight) * (to - from)),
      );
    }
  }
  return totals;
}

const usedByDay = (models: Model[]): UsedByDay =>
  new Map([...usedBy(models, () => '')].map(([day, used]) => [day.trim(), used]));

/** The costs of all rows of a report by UTC day. */
function costsByDay({ rows, unlabelled }: any): Map<string, Exact> {
  const costs = new Map<string, Exact>();
  for (const { day, cost } of [...rows, ...unlabelled]) {
    const date = day.slice(0, 10);
    costs.set(date, plus(costs.get(date) ?? ZERO, exact(cost)));
  }
  return costs;
}

const valuesOf = (row: any) => [row.vcpu_seconds, row.mem_mib_seconds, row.disk_mib_seconds];

test('any runs count under the labels of their time, and the remainder is unlabelled', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ first: labels, changes: fc.array(fc.tuple(moment, labels), { maxLength: 4 }) }), {
        minLength: 1,
        maxLength: 3,
      }),
      fc.array(fc.tuple(fc.nat(2), moment, moment, fc.boolean()), { maxLength: 8 }),
      fc.tuple(moment, moment).filter(([a, b]) => a !== b),
      moment,
      fc.record({
        prices: fc.tuple(price, price, price),
        included: fc.tuple(...[1, 2, 3].map(() => fc.constantFrom('0', '7.000000000001', '1000'))),
      }),
      async (histories, runs, [a, b], now, { prices, included }) => {
        clock = BEGIN;
        setPrices(prices, included);
        const client = await service.newOrg();
        const made: { id: string; periods: Model['periods'] }[] = [];
        for (const [index, { first, changes }] of histories.entries()) {
          clock = BEGIN;
          const { body } = await client.post('/v1/sandboxes', smallRequest(`s-${index}`, { labels: first }));
          const periods: Model['periods'] = [{ from: -DAY * 100_000n, labels: first }];
          for (const [when, worn] of changes.toSorted(([x], [y]) => (x < y ? -1 : x > y ? 1 : 0))) {
            clock = at(when);
            const patched = await client.patch(`/v1/sandboxes/${body.id}`, { labels: worn });
            expect([patched.status, patched.body.spec.labels]).toEqual([200, worn]);
            if (periods.at(-1)!.from === when) periods.pop();
            periods.push({ from: when, labels: worn });
          }
          made.push({ id: body.id, periods });
        }
        const [since, until] = a < b ? [a, b] : [b, a];
        const end = until < now ? until : now;
        const models: Model[] = [];
        const whole: Model[] = [];
        const opened = new Set<string>();
        for (const [index, x, y, open] of runs) {
          const { id, periods } = made[index % made.length]!;
          const [from, to] = x < y ? [x, y] : [y, x];
          const isOpen = open && !opened.has(id);
          if (isOpen) opened.add(id);
          await insertRun(client, id, at(from), isOpen ? null : at(to));
          const cut = {
            from: from > since ? from : since,
            to: isOpen || to > end ? end : to,
          };
          const both = { weights: [2, 3, 5], sandbox: id, periods };
          models.push({ ...cut, ...both });
          whole.push({ from, to: isOpen || to > now ? now : to, ...both });
        }
        clock = at(now);
        const range = { since: at(since), until: at(until) };

        const { body } = await client.get('/v1/billing/usage/labels', { key: 'team', ...range });
        expect(
          new Map(body.rows.map((row: any) => [`${row.day.slice(0, 10)} ${row.value}`, valuesOf(row)])),
        ).toEqual(sums(models, (_, worn) => worn['team']));
        expect(
          new Map(body.unlabelled.map((row: any) => [`${row.day.slice(0, 10)} -`, valuesOf(row)])),
        ).toEqual(sums(models, (_, worn) => (worn['team'] === undefined ? '-' : undefined)));

        const { body: pairs } = await client.get('/v1/billing/usage/labels', {
          key: ['tier', 'team'],
          ...range,
        });
        expect(
          new Map(pairs.rows.map((row: any) => [`${row.day.slice(0, 10)} ${row.values}`, valuesOf(row)])),
        ).toEqual(
          sums(models, (_, { team, tier }) =>
            (team ?? tier) === undefined ? undefined : [tier, team].join(),
          ),
        );
        expect(
          new Map(pairs.unlabelled.map((row: any) => [`${row.day.slice(0, 10)} -`, valuesOf(row)])),
        ).toEqual(sums(models, (_, { team, tier }) => ((team ?? tier) === undefined ? '-' : undefined)));

        // The costs of a day are those of the organization, however many groups there are.
        const costs = [...costsByDay(body)].toSorted(([x], [y]) => (x < y ? -1 : 1));
        const { body: none } = await client.get('/v1/billing/usage/labels', { key: 'none', ...range });
        for (const other of [pairs, none]) {
          const found = costsByDay(other);
          expect(found.size).toBe(costs.length);
          for (const [day, cost] of costs) expect(isEqual(found.get(day)!, cost)).toBe(true);
        }
        const expected = exactCosts(usedByDay(whole), usedByDay(models), { prices, included });
        expect(costs.map(([day]) => day)).toEqual([...expected.keys()].toSorted());
        for (const [day, cost] of costs) {
          const error = minus(cost, expected.get(day)!);
          // Only half a microsecond of each quantity is rounded.
          expect(isLess(error.n < 0n ? { n: -error.n, d: error.d } : error, exact('0.0000001'))).toBe(true);
        }

        const wanted = { team: 'a', tier: 'x' };
        for (const [filter, fits] of [
          [{ labels: '{"team":"a"}' }, (_: string, worn: any) => worn.team === 'a'],
          [
            { labels: JSON.stringify(wanted), sandbox_id: [made[0]!.id] },
            (id: string, worn: any) => worn.team === 'a' && worn.tier === 'x' && id === made[0]!.id,
          ],
          [
            { sandbox_id: made.slice(0, 2).map(({ id }) => id) },
            (id: string) => made.slice(0, 2).some((s) => s.id === id),
          ],
        ] as [Record<string, any>, (id: string, worn: any) => boolean][]) {
          const found = await client.get('/v1/billing/usage/sandbox', { ...filter, ...range });
          expect(
            new Map(
              found.body.rows.map((row: any) => [`${row.day.slice(0, 10)} ${row.sandbox_id}`, valuesOf(row)]),
            ),
          ).toEqual(sums(models, ({ sandbox }, worn) => (fits(sandbox, worn) ? sandbox : undefined)));
          const grouped = await client.get('/v1/billing/usage/labels', { key: 'tier', ...filter, ...range });
          expect(
            new Map(
              grouped.body.rows.map((row: any) => [`${row.day.slice(0, 10)} ${row.value}`, valuesOf(row)]),
            ),
          ).toEqual(sums(models, ({ sandbox }, worn) => (fits(sandbox, worn) ? worn['tier'] : undefined)));
        }
      },
    ),
    { numRuns: 25 },
  );
  clock = BEGIN;
});

describe('labels of a sandbox', () => {
  test('can be replaced, filter the list, and record an event', async () => {
    const client = await service.newOrg();
    const { body: made } = await client.post(
      '/v1/sandboxes',
      smallRequest('worn', { labels: { team: 'a', old: '1' } }),
    );
    clock = addMillis(clock, 1000);
    const labels = { team: 'b', new: '' };
    const { status, body } = await client.patch(`/v1/sandboxes/${made.id}`, { labels, name: 'renamed' });
    expect([status, body]).toEqual([200, { ...made, name: 'renamed', spec: { ...made.spec, labels } }]);
    expect((await client.get(`/v1/sandboxes/${made.id}`)).body).toEqual(body);
    const listed = async (filter: object) =>
      (await client.get('/v1/sandboxes', { labels: JSON.stringify(filter) })).body.data.length;
    expect([await listed(labels), await listed({ team: 'a' }), await listed({ old: '1' })]).toEqual([
      1, 0, 0,
    ]);
    const { body: events } = await client.get('/v1/events', { event_type: 'sandbox_relabelled' });
    expect(events.data.map(({ payload }: any) => payload)).toEqual([
      { sandbox_id: made.id, before: { labels: { team: 'a', old: '1' } }, after: { labels } },
    ]);
  });

  test('that are equal, missing or null change nothing; invalid ones are refused by name', async () => {
    const client = await service.newOrg();
    const { body: made } = await client.post(
      '/v1/sandboxes',
      smallRequest('kept', { labels: { b: '2', a: '1' } }),
    );
    for (const body of [{ labels: { a: '1', b: '2' } }, { labels: null }, {}]) {
      expect((await client.patch(`/v1/sandboxes/${made.id}`, body)).body).toEqual(made);
    }
    expect((await client.get('/v1/events', { event_type: 'sandbox_relabelled' })).body.data).toEqual([]);
    const refused = await client.patch(`/v1/sandboxes/${made.id}`, { labels: { 'sandbox.x': '1' } });
    expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'labels.sandbox.x' }]);
  });

  test('that changed before a window leave its stored days in use', async () => {
    const client = await service.newOrg();
    clock = at(0n);
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('veteran'));
    await client.patch(`/v1/sandboxes/${made.id}`, { labels: { team: 'a' } });
    await insertRun(client, made.id, at(DAY), at(DAY + 1_000_000n));
    clock = at(3n * DAY);
    // This change shows whether the answer read the stored days or the runs.
    await service.ctx.pool.query('update usage_days set vcpu_micros = 7000000 where org_id = $1', [
      client.org.id,
    ]);
    const range = { since: at(DAY), until: at(2n * DAY) };
    const filter = { ...range, labels: JSON.stringify({ team: 'a' }) };
    const [byLabel] = (await client.get('/v1/billing/usage/labels', { key: 'team', ...range })).body.rows;
    const [filtered] = (await client.get('/v1/billing/usage/sandbox', filter)).body.rows;
    expect([byLabel.vcpu_seconds, filtered.vcpu_seconds]).toEqual([7, 7]);
  });

  test('stay with the usage of a deleted sandbox', async () => {
    const client = await service.newOrg();
    setPrices(['0.1', '0', '0']);
    clock = at(DAY);
    const { body: made } = await client.post(
      '/v1/sandboxes',
      smallRequest('gone', { labels: { team: 'a' } }),
    );
    await insertRun(client, made.id, at(0n), at(1_000_000n));
    await client.delete(`/v1/sandboxes/${made.id}`);
    const usage = await client.get('/v1/billing/usage/labels', { key: 'team', since: '2028-02-27' });
    expect(usage.body.rows).toEqual([
      {
        day: '2028-02-27T00:00:00Z',
        value: 'a',
        values: ['a'],
        vcpu_seconds: 2,
        mem_mib_seconds: 3,
        disk_mib_seconds: 5,
        cost: '0.0000555555556',
      },
    ]);
    expect(usage.body.unlabelled).toEqual([]);
  });
});

describe('several keys', () => {
  test('are at most four, each once, and a service without prices has no cost', async () => {
    const client = await service.newOrg();
    clock = at(DAY);
    for (const key of [['a', 'a'], ['a', 'b', 'c', 'd', 'e'], [''], []]) {
      const { status, body } = await client.get('/v1/billing/usage/labels', { key });
      expect([status, body.error.details.parameter]).toEqual([400, 'key']);
    }
    Object.assign(service.ctx.settings, { priceBook: null });
    const labels = { team: 'ml', d: '' };
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('four', { labels }));
    await insertRun(client, made.id, at(0n), at(1_000_000n));
    const { body } = await client.get('/v1/billing/usage/labels', {
      key: ['a', 'team', 'c', 'd'],
      since: '2028-02-27',
    });
    expect(body).toEqual({
      keys: ['a', 'team', 'c', 'd'],
      currency: null,
      minor_unit_digits: null,
      unlabelled: [],
      rows: [
        {
          day: '2028-02-27T00:00:00Z',
          values: [null, 'ml', null, ''],
          vcpu_seconds: 2,
          mem_mib_seconds: 3,
          disk_mib_seconds: 5,
          cost: null,
        },
      ],
    });
    const stranger = await service.newOrg();
    const foreign = await stranger.get('/v1/billing/usage/labels', {
      key: ['team', 'd'],
      sandbox_id: made.id,
    });
    expect([foreign.body.rows, foreign.body.unlabelled]).toEqual([[], []]);
  });

  test('with thousands of label changes need time that grows with the changes', async () => {
    const client = await service.newOrg();
    clock = at(4n * DAY);
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('restless'));
    // A join of the periods of four keys would have 16 x 10^12 rows.
    const CHANGES = 2_000;
    await service.ctx.pool.query(
      `insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
       select $1, key, key || n, $2, $3::timestamptz + make_interval(secs => n - 1),
         case when n = $4 then 'infinity' else $3::timestamptz + make_interval(secs => n) end
       from generate_series(1, $4::int) n, unnest('{a,b,c,d}'::text[]) key`,
      [client.org.id, made.id, at(0n), CHANGES],
    );
    await insertRun(client, made.id, at(-1_000_000n), at(DAY));
    const { body } = await client.get('/v1/billing/usage/labels', {
      key: ['a', 'b', 'c', 'd'],
      since: '2028-02-26',
    });
    expect(body.rows.length).toBe(CHANGES);
    expect(body.rows[0].values).toEqual(['a1', 'b1', 'c1', 'd1']);
    expect(body.unlabelled.map(valuesOf)).toEqual([[2, 3, 5]]);
  });
});

describe('CSV', () => {
  async function csv(client: Client, path: string, accept = 'text/csv'): Promise<[string | null, string]> {
    const response = await fetch(`${service.url}${path}`, {
      headers: { authorization: `Bearer ${client.key}`, accept },
    });
    expect([response.status, response.headers.get('vary')]).toEqual([200, 'accept']);
    return [response.headers.get('content-type'), await response.text()];
  }

  test('is available on request, with names and values quoted and no formulas', async () => {
    const client = await service.newOrg();
    clock = at(DAY);
    setPrices(['0.36', '0', '0']);
    const team = '=1+1,"x"\n';
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('plain', { labels: { team } }));
    const loose = (await client.post('/v1/sandboxes', smallRequest('other'))).body.id;
    await insertRun(client, made.id, at(0n), at(1n));
    await insertRun(client, loose, at(3n), null);
    const range = 'since=2028-02-27';
    const type = 'text/csv; charset=utf-8';
    expect(await csv(client, `/v1/billing/usage/sandbox?${range}`)).toEqual([
      type,
      'day,sandbox_id,name,vcpu_seconds,mem_mib_seconds,disk_mib_seconds\r\n' +
        `2028-02-27,${loose},"other",172799.999994,259199.999991,431999.999985\r\n` +
        `2028-02-27,${made.id},"plain",2e-06,3e-06,5e-06\r\n`,
    ]);
    expect(await csv(client, `/v1/billing/usage/labels?key=team&${range}`)).toEqual([
      type,
      'day,bucket,value,vcpu_seconds,mem_mib_seconds,disk_mib_seconds,cost,currency\r\n' +
        `2028-02-27,labelled,"'=1+1,""x""\n",2e-06,3e-06,5e-06,0.00000000020016,EUR\r\n` +
        '2028-02-27,unlabelled,,172799.999994,259199.999991,431999.999985,17.27999999939988,EUR\r\n',
    ]);
    const other = encodeURIComponent(',a"');
    expect((await csv(client, `/v1/billing/usage/labels?key=team&key=${other}&${range}`))[1]).toBe(
      'day,bucket,label:team,"label:,a""",vcpu_seconds,mem_mib_seconds,disk_mib_seconds,cost,currency\r\n' +
        `2028-02-27,labelled,"'=1+1,""x""\n",,2e-06,3e-06,5e-06,0.00000000020016,EUR\r\n` +
        '2028-02-27,unlabelled,,,172799.999994,259199.999991,431999.999985,17.27999999939988,EUR\r\n',
    );
    const host = (await client.get('/v1/volumes/default')).body.id;
    await service.ctx.pool.query(
      'insert into accruals (org_id, volume_id, from_at, to_at, used_mib) values ($1, $2, $3, $4, 0.5)',
      [client.org.id, host, at(0n), at(2_000_000n)],
    );
    expect(await csv(client, `/v1/billing/usage/storage?${range}`)).toEqual([
      type,
      `day,volume_id,name,mib_seconds\r\n2028-02-27,${host},,1\r\n`,
    ]);
  });

  test('keeps similar names apart, and neutralises those that look like formulas', async () => {
    const client = await service.newOrg();
    clock = at(DAY);
    const names = ['-1', "'-1", ' =1', '\n=1', '＝1', '@x', 'plain'];
    for (const team of names) {
      const { body } = await client.post(
        '/v1/sandboxes',
        smallRequest(`s-${uuidv7()}`, { labels: { team } }),
      );
      await insertRun(client, body.id, at(0n), at(1n));
    }
    const [, text] = await csv(client, '/v1/billing/usage/labels?key=team&since=2028-02-27');
    expect(new Set([...text.matchAll(/labelled,"([^"]*)"/g)].map(([, value]) => value))).toEqual(
      new Set(["'-1", "''-1", "' =1", "'\n=1", "'＝1", "'@x", 'plain']),
    );
  });

  test.each([
    ['application/json', 'json'],
    ['*/*', 'json'],
    ['text/*', 'csv'],
    ['text/csv;q=0.5, application/json', 'json'],
    ['application/json;q=0.5, text/csv', 'csv'],
    ['image/png', 'json'],
    ['text/csv;q=0', 'json'],
  ])('Accept: %s gives %s', async (accept, format) => {
    const client = await service.newOrg();
    const [type] = await csv(client, '/v1/billing/usage/storage', accept);
    expect(type).toContain(format);
  });
});
