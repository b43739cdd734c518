import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { instantFromMicros, microsOf } from '../../../src/lib/instant.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { untilStatus } from '../../support/polling.js';

const DAY = 86_400_000_000n;
const NOW = '2028-03-02T12:34:56.789012Z';

let service: TestService;
let clock = NOW;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => clock });
});
afterAll(() => service.close());

interface Interval {
  owner: string;
  from: bigint;
  to: bigint | null;
  weights: number[];
}

/** An oracle that shares nothing with the query: it adds up day by day, in whole microseconds. */
function expectedRows(
  intervals: Interval[],
  since: bigint,
  until: bigint,
  now: bigint,
): Map<string, bigint[]> {
  const sums = new Map<string, bigint[]>();
  for (const { owner, from, to, weights } of intervals) {
    for (let day = (since / DAY) * DAY; day < until; day += DAY) {
      const begin = [from, since, day].reduce((a, b) => (a > b ? a : b));
      const end = [to ?? now, now, until, day + DAY].reduce((a, b) => (a < b ? a : b));
      if (end <= begin) continue;
      const key = `${instantFromMicros(day).slice(0, 10)} ${owner}`;
      const before = sums.get(key) ?? weights.map(() => 0n);
      sums.set(
        key,
        before.map((sum, index) => sum + (end - begin) * BigInt(weights[index]!)),
      );
    }
  }
  return sums;
}

/** Times around midnights, a month's end, a leap day, and the ends of the window, to the microsecond. */
const instant = fc
  .tuple(
    fc.constantFrom(
      '2028-02-27',
      '2028-02-28',
      '2028-02-29',
      '2028-03-01',
      '2028-03-02',
      '2028-03-03',
      '2027-12-31',
      '2028-01-01',
    ),
    fc.oneof(fc.constantFrom(0n, 1n, DAY - 1n, DAY / 2n), fc.bigInt(0n, DAY - 1n)),
  )
  .map(([day, offset]) => microsOf(`${day}T00:00:00.000000Z`) + offset);

const window = fc
  .tuple(instant, instant)
  .filter(([a, b]) => a !== b)
  .map(([a, b]) => (a < b ? { since: a, until: b } : { since: b, until: a }));

describe('the usage of compute', () => {
  test('equals a walk over the days for any runs and window; the days and the runs add up alike', async () => {
    const client = await service.newOrg();
    const sandboxes: string[] = [];
    for (let index = 0; index < 4; index += 1) {
      sandboxes.push((await client.post('/v1/sandboxes', smallRequest(`s-${index}`))).body.id);
    }
    const resource = fc.integer({ min: 0, max: 2_000_000 });
    const run = fc.record({
      sandbox: fc.nat(3),
      start: instant,
      length: fc.oneof(fc.constantFrom(0n, 1n, DAY), fc.bigInt(0n, 3n * DAY)),
      open: fc.boolean(),
      resources: fc.tuple(fc.integer({ min: 0, max: 128 }), resource, resource),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(run, { maxLength: 12 }),
        window,
        instant,
        async (runs, { since, until }, now) => {
          await service.ctx.pool.query('delete from runs where org_id = $1', [client.org.id]);
          const opened = new Set<string>();
          const intervals: Interval[] = [];
          for (const { sandbox, start, length, open, resources } of runs) {
            const owner = sandboxes[sandbox]!;
            const to = open && !opened.has(owner) ? null : start + length;
            if (to === null) opened.add(owner);
            intervals.push({ owner, from: start, to, weights: resources });
            await service.ctx.pool.query(
              `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
              [
                client.org.id,
                uuidv7(),
                owner,
                ...resources,
                instantFromMicros(start),
                to === null ? null : instantFromMicros(to),
                to === null ? null : 'test',
              ],
            );
          }
          clock = instantFromMicros(now);
          const { status, body, text } = await client.get('/v1/billing/usage/sandbox', {
            since: instantFromMicros(since),
            until: instantFromMicros(until),
          });
          expect(status, text).toBe(200);
          const expected = expectedRows(intervals, since, until, now);
          const found = new Map(
            body.rows.map((row: any) => [
              `${row.day.slice(0, 10)} ${row.sandbox_id}`,
              [row.vcpu_seconds, row.mem_mib_seconds, row.disk_mib_seconds],
            ]),
          );
          expect(body.rows.every(({ day }: { day: string }) => day.endsWith('T00:00:00Z'))).toBe(true);
          // The exact quotient, rounded once, as a decimal literal of it is parsed.
          expect(found).toEqual(new Map([...expected].map(([key, sums]) => [key, sums.map(seconds)])));
          const names = new Map<string, string>(body.sandboxes.map(({ id, name }: any) => [id, name]));
          expect(new Set(names.keys())).toEqual(new Set(body.rows.map(({ sandbox_id }: any) => sandbox_id)));
          const order: string[] = body.rows.map(
            (row: any) => `${row.day} ${names.get(row.sandbox_id) ?? '?'}`,
          );
          expect(order).toEqual([...order].toSorted());
        },
      ),
      { numRuns: 75 },
    );
    clock = NOW;
  });

  test('covers the current UTC month until now by default', async () => {
    const client = await service.newOrg();
    const { body } = await client.post('/v1/sandboxes', smallRequest('month'));
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at)
       values ($1, $2, $3, 2, 512, 0, '2028-02-01T00:00:00Z')`,
      [client.org.id, uuidv7(), body.id],
    );
    const usage = await client.get('/v1/billing/usage/sandbox');
    expect(usage.body.rows).toEqual([
      {
        day: '2028-03-01T00:00:00Z',
        sandbox_id: body.id,
        vcpu_seconds: 172_800,
        mem_mib_seconds: 44_236_800,
        disk_mib_seconds: 0,
      },
      {
        day: '2028-03-02T00:00:00Z',
        sandbox_id: body.id,
        vcpu_seconds: 90_593.578024,
        mem_mib_seconds: 23_191_955.974144,
        disk_mib_seconds: 0,
      },
    ]);
  });

  test('includes deleted sandboxes, by name', async () => {
    const client = await service.newOrg();
    const { body } = await client.post('/v1/sandboxes', smallRequest('gone'));
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, 1, 1, 1, '2028-03-01T00:00:00Z', '2028-03-01T00:00:01Z', 'test')`,
      [client.org.id, uuidv7(), body.id],
    );
    await client.delete(`/v1/sandboxes/${body.id}`);
    const usage = await client.get('/v1/billing/usage/sandbox');
    expect(usage.body).toEqual({
      rows: [
        {
          day: '2028-03-01T00:00:00Z',
          sandbox_id: body.id,
          vcpu_seconds: 1,
          mem_mib_seconds: 1,
          disk_mib_seconds: 1,
        },
      ],
      sandboxes: [{ id: body.id, name: 'gone', slug: body.slug }],
    });
  });
});

describe('the usage of storage', () => {
  test('equals a walk over the days for any accruals and window', async () => {
    const client = await service.newOrg();
    const host = (await client.get('/v1/volumes/default')).body.id;
    const managed = (await client.post('/v1/volumes', { name: 'data' })).body.id;
    const volumes = [host, managed, uuidv7()];
    const accrual = fc.record({
      volume: fc.nat(2),
      start: instant,
      length: fc.oneof(fc.constantFrom(0n, 1n), fc.bigInt(0n, 2n * DAY)),
      used: fc.integer({ min: 0, max: 10_000_000 }),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(accrual, { maxLength: 12 }),
        window,
        instant,
        async (accruals, { since, until }, now) => {
          await service.ctx.pool.query('delete from accruals where org_id = $1', [client.org.id]);
          const intervals: Interval[] = [];
          const taken = new Set<string>();
          for (const { volume, start, length, used } of accruals) {
            const owner = volumes[volume]!;
            if (taken.has(`${owner} ${start}`)) continue;
            taken.add(`${owner} ${start}`);
            intervals.push({ owner, from: start, to: start + length, weights: [used] });
            await service.ctx.pool.query(
              'insert into accruals (org_id, volume_id, from_at, to_at, used_mib) values ($1, $2, $3, $4, $5)',
              [client.org.id, owner, instantFromMicros(start), instantFromMicros(start + length), used],
            );
          }
          clock = instantFromMicros(now);
          const { body } = await client.get('/v1/billing/usage/storage', {
            since: instantFromMicros(since),
            until: instantFromMicros(until),
          });
          const expected = expectedRows(intervals, since, until, now);
          const found = new Map(
            body.rows.map((row: any) => [`${row.day.slice(0, 10)} ${row.volume_id}`, [row.mib_seconds]]),
          );
          expect(found).toEqual(new Map([...expected].map(([key, sums]) => [key, sums.map(seconds)])));
          const ids = new Set(body.rows.map(({ volume_id }: any) => volume_id));
          expect(body.volumes).toEqual(
            [
              { id: managed, name: 'data' },
              { id: host, name: null },
            ].filter(({ id }) => ids.has(id)),
          );
        },
      ),
      { numRuns: 75 },
    );
    clock = NOW;
  });
});

test('usage follows the recorded times of a real start and stop', async () => {
  const live = await startTestService();
  try {
    const client: Client = await live.newOrg();
    const made = await client.post(
      '/v1/sandboxes',
      smallRequest('metered', { resources: { vcpus: 3, memory_mib: 100 } }),
      { start: true, wait_for: 'running' },
    );
    await client.post(`/v1/sandboxes/${made.body.id}/stop`, {});
    await untilStatus(client, made.body.id, 'stopped');
    const [held] = await live.runtime.list();
    const micros = microsOf(held!.finishedAt!) - microsOf(held!.startedAt!);
    const { body } = await client.get('/v1/billing/usage/sandbox');
    const sum = (key: string) => body.rows.reduce((total: number, row: any) => total + row[key], 0);
    expect(sum('vcpu_seconds')).toBeCloseTo(Number(micros * 3n) / 1e6, 6);
    expect(sum('mem_mib_seconds')).toBeCloseTo(Number(micros * 100n) / 1e6, 6);
  } finally {
    await live.close();
  }
});

/** Micro-units as seconds: exact as a decimal, then parsed as the nearest double. */
function seconds(micros: bigint): number {
  const text = micros.toString().padStart(7, '0');
  return Number(`${text.slice(0, -6)}.${text.slice(-6)}`);
}
