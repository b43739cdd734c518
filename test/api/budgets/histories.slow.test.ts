import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  instantFromMicros,
  microsOf,
  monthAfter,
  startOfMonth,
  type Instant,
} from '../../../src/lib/instant.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import { enforceBudgets } from '../../../src/sandboxes/lifecycle/stop-over-budget.js';
import { insertRun, makeBudget, ORGANIZATION } from '../../support/budgets.js';
import { exactCosts, type UsedByDay } from '../../support/cost-oracle.js';
import { exact, isLess, minus, plus, times, ZERO, type Exact } from '../../support/exact.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const DAY = 86_400_000_000n;
/** Five days around the end of a month with a leap day. */
const BEGIN = '2028-02-27T00:00:00.000000Z';
const PRICES = { prices: ['0.0504', '0.0162', '0'], included: ['3.5', '0', '0'] };

let service: TestService;
let clock = BEGIN;
beforeAll(async () => {
  const byMetric = ([vcpu_hour, memory_gib_hour, disk_gib_hour]: string[]) => ({
    vcpu_hour,
    memory_gib_hour,
    disk_gib_hour,
  });
  const book = { currency: 'EUR', prices: byMetric(PRICES.prices), included: byMetric(PRICES.included) };
  service = await startTestService({
    worker: false,
    now: () => clock,
    settings: { priceBook: parsePriceBook(JSON.stringify(book), 'book.json'), budgetsPerOrg: 100 },
  });
});
afterAll(() => service.close());

const at = (offset: bigint): Instant => instantFromMicros(microsOf(BEGIN) + offset);
/** A hundred and twenty hours, each with its start, its middle, and the microseconds beside them. */
const moment = fc
  .tuple(fc.nat(119), fc.constantFrom(0n, 1n, 1_799_999_999n, 1_800_000_000n, 3_599_999_999n))
  .map(([hour, rest]) => BigInt(hour) * 3_600_000_000n + rest);
const labels = fc.constantFrom<Record<string, string>>(
  {},
  { team: 'a' },
  { team: 'b' },
  { team: 'a', tier: 'x' },
);
const limit = fc.constantFrom('0.5', '1', '12.000001', '24', '60.5');

interface Run {
  from: bigint;
  /** Null: open. */
  to: bigint | null;
  key: 0 | 1 | null;
  keySince: bigint | null;
  resources: [number, number, number];
  /** The labels of its sandbox, in time order. */
  periods: { from: bigint; labels: Record<string, string> }[];
}

interface Covered {
  label?: [string, string];
  key?: number;
}

/** The oracle: microseconds times 1, vCPUs, memory and disk, by UTC day of the month until `now`. */
function usedOf(runs: readonly Run[], now: bigint, { label, key }: Covered): Map<string, bigint[]> {
  const month = microsOf(startOfMonth(at(now))) - microsOf(BEGIN);
  const days = new Map<string, bigint[]>();
  for (const run of runs) {
    if (key !== undefined && run.key !== key) continue;
    const since = key === undefined ? run.from : larger(run.from, run.keySince ?? run.from);
    const to = smaller(run.to ?? now, now);
    for (let position = larger(since, month); position < to;) {
      const worn = run.periods.findLast((period) => period.from <= position)!;
      const next = run.periods.find((period) => period.from > position)?.from ?? to;
      const midnight = (position / DAY + 1n) * DAY;
      const end = smaller(smaller(next, midnight), to);
      if (label === undefined || worn.labels[label[0]] === label[1]) {
        const day = at(position).slice(0, 10);
        const before = days.get(day) ?? [0n, 0n, 0n, 0n];
        const weights = [1, ...run.resources];
        days.set(
          day,
          before.map((sum, index) => sum + BigInt(weights[index]!) * (end - position)),
        );
      }
      position = end;
    }
  }
  return days;
}

const larger = (a: bigint, b: bigint) => (a > b ? a : b);
const smaller = (a: bigint, b: bigint) => (a < b ? a : b);

const HOUR = 3_600_000_000n;
const UNITS = {
  sandbox_hours: HOUR,
  vcpu_hours: HOUR,
  memory_gib_hours: HOUR * 1024n,
  disk_gib_hours: HOUR * 1024n,
};
const MEASURES = Object.keys(UNITS) as (keyof typeof UNITS)[];
const SCOPES: { scope: (keys: string[]) => object; covered: Covered }[] = [
  { scope: () => ORGANIZATION, covered: {} },
  { scope: () => ({ type: 'label', key: 'team', value: 'a' }), covered: { label: ['team', 'a'] } },
  { scope: () => ({ type: 'label', key: 'tier', value: 'x' }), covered: { label: ['tier', 'x'] } },
  { scope: ([first]) => ({ type: 'api_key', api_key_id: first }), covered: { key: 0 } },
];

function hoursOf(days: ReadonlyMap<string, bigint[]>, measure: keyof typeof UNITS): Exact {
  const index = MEASURES.indexOf(measure);
  const sum = [...days.values()].reduce((total, used) => total + used[index]!, 0n);
  return { n: sum, d: UNITS[measure] };
}

const resourcesByDay = (days: ReadonlyMap<string, bigint[]>): UsedByDay =>
  new Map([...days].map(([day, used]) => [day, used.slice(1)]));

function costOf(all: ReadonlyMap<string, bigint[]>, own: ReadonlyMap<string, bigint[]>): Exact {
  const costs = exactCosts(resourcesByDay(all), resourcesByDay(own), PRICES);
  return [...costs.values()].reduce((sum, cost) => plus(sum, cost), ZERO);
}

/** The error of rounded quantities of days, in major units of the currency. */
const TOLERANCE = exact('0.000000001');

test('random histories have the use of an oracle, and a start is refused exactly from the limit on', async () => {
  const history = fc.record({ first: labels, changes: fc.array(fc.tuple(moment, labels), { maxLength: 3 }) });
  const run = fc.record({
    sandbox: fc.nat(2),
    a: moment,
    b: moment,
    open: fc.boolean(),
    key: fc.constantFrom(0, 1, null),
    since: fc.option(moment),
    resources: fc.tuple(fc.constantFrom(1, 2), fc.constantFrom(512, 1024), fc.constantFrom(0, 2048)),
  });
  const enforced = fc.record({
    scope: fc.nat(SCOPES.length - 1),
    measure: fc.nat(MEASURES.length),
    limit,
    action: fc.constantFrom('refuse_starts', 'stop'),
  });
  let refusals = 0;
  let accepted = 0;
  let stored = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(history, { minLength: 1, maxLength: 3 }),
      fc.array(run, { maxLength: 9 }),
      fc.array(moment, { minLength: 3, maxLength: 3 }),
      fc.array(enforced, { maxLength: 3 }),
      async (histories, drawn, moments, limits) => {
        clock = BEGIN;
        const client = await service.newOrg();
        const second = await client.post('/v1/keys', { name: 'second', scopes: ['org:admin'] });
        const keys = [client.keyId, second.body.id as string];
        const sandboxes: { id: string; periods: Run['periods'] }[] = [];
        for (const [index, { first, changes }] of histories.entries()) {
          clock = BEGIN;
          const { body } = await client.post('/v1/sandboxes', smallRequest(`s-${index}`, { labels: first }));
          const periods: Run['periods'] = [{ from: -DAY * 100_000n, labels: first }];
          for (const [when, worn] of changes.toSorted(([x], [y]) => (x < y ? -1 : 1))) {
            clock = at(when);
            await client.patch(`/v1/sandboxes/${body.id}`, { labels: worn });
            if (periods.at(-1)!.from === when) periods.pop();
            periods.push({ from: when, labels: worn });
          }
          sandboxes.push({ id: body.id, periods });
        }
        const runs: Run[] = [];
        const opened = new Set<string>();
        /** The record of some runs comes after checks of their days. */
        const record = async (some: typeof drawn) => {
          for (const { sandbox, a, b, open, key, since, resources } of some) {
            const { id, periods } = sandboxes[sandbox % sandboxes.length]!;
            const isOpen = open && !opened.has(id);
            if (isOpen) opened.add(id);
            const [from, to] = [smaller(a, b), isOpen ? null : larger(a, b)];
            await insertRun(service.ctx.pool, client, {
              sandbox: id,
              from: at(from),
              to: to === null ? null : at(to),
              resources,
              key: key === null ? null : keys[key]!,
              keySince: since === null ? null : at(since),
            });
            runs.push({ from, to, key, keySince: since, resources, periods });
          }
        };
        clock = BEGIN;
        for (const [index, { scope }] of SCOPES.entries()) {
          for (const measure of [...MEASURES, 'cost']) {
            await makeBudget(client, {
              name: `${index} ${measure}`,
              scope: scope(keys),
              measure,
              limit: '24',
            });
          }
        }
        const refusing = limits.map(({ scope, measure, ...fields }) => ({
          scope: SCOPES[scope]!,
          measure: [...MEASURES, 'cost' as const][measure]!,
          ...fields,
        }));
        for (const { scope, ...fields } of refusing) {
          await makeBudget(client, { ...fields, scope: scope.scope(keys) });
        }
        for (const [index, now] of moments.entries()) {
          clock = at(now);
          await record(drawn.slice(index * 3, index * 3 + 3));
          const { data } = (await client.get('/v1/budgets', { limit: 100 })).body;
          const byName = new Map<string, any>(data.map((budget: any) => [budget.name, budget]));
          const all = usedOf(runs, now, {});
          for (const [place, { covered }] of SCOPES.entries()) {
            const own = usedOf(runs, now, covered);
            for (const measure of MEASURES) {
              const budget = byName.get(`${place} ${measure}`);
              const used = hoursOf(own, measure);
              const difference = minus(used, exact(budget.used));
              expect([isLess(difference, ZERO), isLess(difference, exact('0.000000000001'))]).toEqual([
                false,
                true,
              ]);
              expect(budget.state === 'exhausted').toBe(!isLess(used, exact('24')));
              expect(budget.reached).toEqual(
                [50, 80, 100].filter(
                  (percent) => !isLess(times(used, exact('100')), exact(`${percent * 24}`)),
                ),
              );
              expect(budget.period_end.slice(0, 19)).toBe(monthAfter(startOfMonth(clock)).slice(0, 19));
            }
            const budget = byName.get(`${place} cost`);
            const difference = minus(exact(budget.used), costOf(all, own));
            expect([isLess(difference, TOLERANCE), isLess(minus(ZERO, TOLERANCE), difference)]).toEqual([
              true,
              true,
            ]);
            expect(budget.state === 'exhausted').toBe(!isLess(exact(budget.used), exact('24')));
          }
          // The start of a new sandbox, which uses nothing itself: only the use until now decides.
          const worn = { team: 'a' };
          const request = smallRequest(`new-${index}`, { labels: worn });
          const answer = await client.post('/v1/sandboxes', request, { start: true });
          const isOver = refusing.some(({ scope: { covered }, measure, limit: most }) => {
            const { label, key } = covered;
            if (label && label[0] !== 'team') return false;
            if (key !== undefined && key !== 0) return false;
            const own = usedOf(runs, now, covered);
            const used = measure === 'cost' ? costOf(all, own) : hoursOf(own, measure);
            return !isLess(used, exact(most));
          });
          expect([answer.status, answer.body.error?.code]).toEqual(
            isOver ? [403, 'budget_exceeded'] : [200, undefined],
          );
          refusals += Number(isOver);
          accepted += Number(!isOver);
          if (answer.status === 200) await client.delete(`/v1/sandboxes/${answer.body.id}`);
          // A check stores past days.
          await service.ctx.pool.query(
            `update budgets set next_check_at = case when name like '% sandbox_hours' then '2000-01-01Z'::timestamptz
               else '9999-01-01Z' end where org_id = $1`,
            [client.org.id],
          );
          await enforceBudgets(service.ctx, new AbortController().signal);
          const { rows } = await service.ctx.pool.query<{ count: number }>(
            'select count(*)::int as count from budget_days where org_id = $1',
            [client.org.id],
          );
          stored += rows[0]!.count;
        }
        // Later checks skip this organization.
        await service.ctx.pool.query('delete from budgets where org_id = $1', [client.org.id]);
      },
    ),
    {
      numRuns: 8,
      // A run of two hours, half an hour of which is the limit. The third moment is two days later.
      examples: [
        [
          [{ first: {}, changes: [] }],
          [{ sandbox: 0, a: 0n, b: 2n * HOUR, open: false, key: 0, since: null, resources: [1, 512, 0] }],
          [0n, HOUR / 2n, 50n * HOUR],
          [{ scope: 0, measure: 0, limit: '0.5', action: 'refuse_starts' }],
        ],
      ],
    },
  );
  // The example has both outcomes, and days that a check stores.
  expect(Math.min(refusals, accepted, stored)).toBeGreaterThan(0);
});
