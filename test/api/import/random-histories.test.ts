import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  BARE_SPEC,
  clientOf,
  importAll,
  importedEvents,
  line,
  listAll,
  type Line,
} from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

const NOW = '2026-03-20T00:00:00.000000Z';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => NOW });
});
afterAll(() => service.close());

test('any history reads as in a plain model, whatever the order and the pieces of its import', async () => {
  await fc.assert(
    fc.asyncProperty(anyHistory, fc.infiniteStream(fc.nat()), async (history, dice) => {
      const orgs = history.map((plan) => buildOrg(plan));
      const roll = (sides: number) => dice.next().value! % sides;
      const shuffle = <T>(items: T[]): T[] =>
        items
          .map((item) => ({ item, at: roll(2 ** 31) }))
          .toSorted((a, b) => a.at - b.at)
          .map(({ item }) => item);
      // A piece may refer to its own lines and to those of earlier pieces.
      const pieces: Line[][] = Array.from({ length: 1 + roll(4) }, () => []);
      const pieceOf = new Map<string, number>();
      const lines = orgs.flatMap((org) => org.lines);
      for (const item of lines) {
        const parent =
          pieceOf.get(`${item['org_id']}/${item['sandbox_id']}`) ?? pieceOf.get(item['org_id']) ?? 0;
        const piece = parent + roll(pieces.length - parent);
        if (item.kind === 'org') pieceOf.set(item['id'], piece);
        if (item.kind === 'sandbox') pieceOf.set(`${item['org_id']}/${item['id']}`, piece);
        pieces[piece]!.push(item);
      }
      let imported = 0;
      for (const piece of pieces) {
        const result = await importAll(service, shuffle(piece), { chunk: 1 + roll(5000) });
        expect(result.bad).toEqual([]);
        imported += Object.values(result.imported).reduce((sum, count) => sum + count, 0);
      }
      expect(imported).toBe(lines.length);
      const again = await importAll(service, shuffle(lines));
      expect(Object.values(again.imported)).toEqual([0, 0, 0, 0, 0, 0]);
      for (const org of orgs) await expectModel(org, roll);
    }),
    { numRuns: 10 },
  );
});

// Arbitrary histories, and a model of the API's answers about them.

const DAY = 86_400_000_000n;
const START = BigInt(Date.parse('2026-03-01T00:00:00Z')) * 1000n;
const END = BigInt(Date.parse(NOW)) * 1000n;

/** Microseconds in the first nineteen days of March. Few are distinct, so times collide and fall on midnights. */
const anyTime = fc.oneof(
  fc.bigInt({ min: 0n, max: 18n }).map((day) => START + day * DAY),
  fc.bigInt({ min: 0n, max: 18n * DAY }).map((micros) => START + micros),
  fc.bigInt({ min: 0n, max: 18n }).map((day) => START + day * DAY - 1n),
);
/** Few are distinct, so the id often decides the order. */
const anyMoment = fc.oneof(anyTime, fc.constantFrom(START, START + 1n, START + DAY));
const anySpan = fc.tuple(anyTime, anyTime).map(([a, b]) => (a < b ? ([a, b] as const) : ([b, a] as const)));
const resource = fc.oneof(fc.nat(5), fc.nat(2_147_483_647));

const anyHistory = fc.array(
  fc.record({
    sandboxes: fc.array(
      fc.record({
        created: anyMoment,
        removed: fc.boolean(),
        labels: fc.subarray(['a', 'b', 'c']),
        open: fc.option(anyTime),
        runs: fc.array(fc.record({ span: anySpan, vcpus: resource, memory: resource, disk: resource }), {
          maxLength: 4,
        }),
      }),
      { minLength: 2, maxLength: 12, size: 'max' },
    ),
    volumes: fc.array(
      fc.record({
        state: fc.constantFrom('here', 'removed', 'unknown'),
        accruals: fc.uniqueArray(fc.record({ span: anySpan, thousandths: fc.nat(10_000_000) }), {
          maxLength: 4,
          selector: ({ span }) => span[0],
        }),
      }),
      { maxLength: 4 },
    ),
    host: fc.boolean(),
    events: fc.array(fc.record({ at: anyMoment, type: fc.constantFrom('x', 'y', 'z') }), {
      minLength: 2,
      maxLength: 12,
      size: 'max',
    }),
  }),
  { minLength: 1, maxLength: 2 },
);
type Plan = typeof anyHistory extends fc.Arbitrary<(infer T)[]> ? T : never;

interface Interval {
  owner: string;
  span: readonly [bigint, bigint | null];
  /** Per unit of time, in thousandths. */
  rates: Record<string, bigint>;
}

interface Model {
  org: Line;
  lines: Line[];
  sandboxes: Line[];
  volumes: Line[];
  host: Line | undefined;
  events: Line[];
  runs: Interval[];
  accruals: Interval[];
}

function buildOrg(plan: Plan): Model {
  const org = line.org();
  const runs: Interval[] = [];
  const accruals: Interval[] = [];
  const lines: Line[] = [org];
  const sandboxes = plan.sandboxes.map(({ created, removed, labels, ...plan }) => {
    const sandbox = line.sandbox(org, {
      created_at: toTime(created),
      spec: { ...BARE_SPEC, labels: Object.fromEntries(labels.map((label) => [label, 'yes'])) },
      ...(removed ? { removed_at: NOW } : {}),
    });
    lines.push(sandbox);
    const spans: { span: Interval['span']; vcpus: number; memory: number; disk: number }[] = [...plan.runs];
    if (plan.open !== null) spans.push({ span: [plan.open, null], vcpus: 1, memory: 2, disk: 3 });
    for (const { span, vcpus, memory, disk } of spans) {
      const [from, to] = span;
      lines.push(
        line.run(sandbox, {
          started_at: toTime(from),
          stopped_at: to === null ? null : toTime(to),
          vcpus,
          memory_mib: memory,
          disk_mib: disk,
        }),
      );
      const rates = { vcpu_seconds: vcpus, mem_mib_seconds: memory, disk_mib_seconds: disk };
      runs.push({
        owner: sandbox['id'],
        span,
        rates: Object.fromEntries(Object.entries(rates).map(([key, rate]) => [key, BigInt(rate) * 1000n])),
      });
    }
    return sandbox;
  });
  const volumes = plan.volumes.map(({ state, accruals: readings }) => {
    const volume = line.volume(org, state === 'removed' ? { removed_at: NOW } : {});
    if (state !== 'unknown') lines.push(volume);
    for (const { span, thousandths } of readings) {
      lines.push(
        line.accrual(volume, { from: toTime(span[0]), to: toTime(span[1]), used_mib: thousandths / 1000 }),
      );
      accruals.push({ owner: volume['id'], span, rates: { mib_seconds: BigInt(thousandths) } });
    }
    return { ...volume, state };
  });
  const host = plan.host ? line.volume(org, { volume_kind: 'host', name: null }) : undefined;
  if (host) lines.push(host);
  const events = plan.events.map(({ at, type }) =>
    line.event(org, { timestamp: toTime(at), event_type: type }),
  );
  lines.push(...events);
  return { org, lines, sandboxes, volumes, host, events, runs, accruals };
}

async function expectModel(model: Model, roll: (sides: number) => number): Promise<void> {
  const client = await clientOf(service, model.org);
  const limit = 2 + roll(6);
  const ids = (items: readonly Record<string, any>[]): string[] => items.map((item) => item['id']);
  const newestFirst = (key: string) => (a: Line, b: Line) =>
    compare(b[key], a[key]) || compare(b['id'], a['id']);

  const here = model.sandboxes.filter((sandbox) => !('removed_at' in sandbox));
  const newest = here.toSorted(newestFirst('created_at'));
  expect(ids(await listAll(client, '/v1/sandboxes', { limit }))).toEqual(ids(newest));
  expect(ids(await listAll(client, '/v1/sandboxes', { limit, sort: 'created_at' }))).toEqual(
    ids(newest.toReversed()),
  );
  expect(ids(await listAll(client, '/v1/sandboxes', { limit, sort: 'name' }))).toEqual(
    ids(here.toSorted((a, b) => compare(a['name'], b['name']))),
  );
  for (const labels of [['a'], ['b', 'c']]) {
    const filter = JSON.stringify(Object.fromEntries(labels.map((label) => [label, 'yes'])));
    expect(ids(await listAll(client, '/v1/sandboxes', { limit, labels: filter }))).toEqual(
      ids(newest.filter(({ spec }) => labels.every((label) => label in spec.labels))),
    );
  }
  for (const sandbox of model.sandboxes) {
    const { status } = await client.get(`/v1/sandboxes/${sandbox['id']}`);
    expect(status).toBe('removed_at' in sandbox ? 404 : 200);
  }

  const events = model.events.toSorted(newestFirst('timestamp'));
  expect(ids(await importedEvents(client, { limit }))).toEqual(ids(events));
  const odd = events.filter((event) => event['event_type'] === 'x');
  if (odd.length === 0) expect((await client.get('/v1/events', { event_type: 'x' })).status).toBe(400);
  else expect(ids(await listAll(client, '/v1/events', { limit, event_type: 'x' }))).toEqual(ids(odd));

  const { body: volumes } = await client.get('/v1/volumes');
  const managed = model.volumes.filter(({ state }) => state === 'here');
  expect(ids(volumes.filter(({ kind }: any) => kind === 'managed')).toSorted()).toEqual(
    ids(managed).toSorted(),
  );
  const hosts = volumes.filter(({ kind }: any) => kind === 'host');
  expect(hosts).toHaveLength(1);
  if (model.host) expect(hosts[0].id).toBe(model.host['id']);

  const since = START + BigInt(roll(10)) * DAY + BigInt(roll(2) * roll(86_400_000)) * 1000n;
  const until = since + 1n + BigInt(roll(12)) * DAY;
  const window = { since: toTime(since), until: toTime(until) };
  const compute = (await client.get('/v1/billing/usage/sandbox', window)).body;
  expect(byKey(compute.rows, 'sandbox_id')).toEqual(usage(model.runs, 'sandbox_id', since, until));
  const ran = new Set(compute.rows.map((row: any) => row.sandbox_id));
  expect(byId(compute.sandboxes)).toEqual(
    byId(model.sandboxes.filter(({ id }) => ran.has(id)).map(({ id, name, slug }) => ({ id, name, slug }))),
  );
  const storage = (await client.get('/v1/billing/usage/storage', window)).body;
  expect(byKey(storage.rows, 'volume_id')).toEqual(usage(model.accruals, 'volume_id', since, until));
  const stored = new Set(storage.rows.map((row: any) => row.volume_id));
  expect(byId(storage.volumes)).toEqual(
    byId(managed.filter(({ id }) => stored.has(id)).map(({ id, name }) => ({ id, name }))),
  );
}

/** Usage by plain arithmetic: each interval, each day, in whole microseconds times thousandths of a unit. */
function usage(intervals: Interval[], key: string, since: bigint, until: bigint): Record<string, unknown> {
  const sums = new Map<
    string,
    { day: string; owner: string; micros: bigint; units: Record<string, bigint> }
  >();
  for (const { owner, span, rates } of intervals) {
    for (let day = START - DAY; day < END; day += DAY) {
      const from = [span[0], since, day].reduce((a, b) => (a > b ? a : b));
      const to = [span[1] ?? END, END, until, day + DAY].reduce((a, b) => (a < b ? a : b));
      if (from >= to) continue;
      const sum = sums.get(`${day}/${owner}`) ?? { day: toTime(day), owner, micros: 0n, units: {} };
      sums.set(`${day}/${owner}`, sum);
      sum.micros += to - from;
      for (const [name, rate] of Object.entries(rates))
        sum.units[name] = (sum.units[name] ?? 0n) + (to - from) * rate;
    }
  }
  const rows = [...sums.values()].map(({ day, owner, units }) => ({
    day: day.replace('.000000', ''),
    [key]: owner,
    // A single rounding, of the exact decimal.
    ...Object.fromEntries(
      Object.entries(units).map(([name, sum]) => {
        const digits = sum.toString().padStart(10, '0');
        return [name, Number(`${digits.slice(0, -9)}.${digits.slice(-9)}`)];
      }),
    ),
  }));
  return byKey(rows, key);
}

function byKey(rows: any[], key: string): Record<string, unknown> {
  const entries = rows.map((row) => [`${row.day} ${row[key]}`, row] as const);
  expect(new Set(entries.map(([name]) => name)).size).toBe(rows.length);
  return Object.fromEntries(entries);
}

function byId(items: any[]): any[] {
  return items.toSorted((a, b) => compare(a.id, b.id));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function toTime(micros: bigint): string {
  const seconds = new Date(Number(micros / 1_000_000n) * 1000).toISOString().slice(0, 19);
  return `${seconds}.${(micros % 1_000_000n).toString().padStart(6, '0')}Z`;
}
