import fc from 'fast-check';
import { linkSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addMillis, instantFromMicros, microsOf, type Instant } from '../src/lib/instant.js';
import { insertReading } from '../src/volumes/accrual-queries.js';
import { sampleVolumes } from '../src/volumes/sample.js';
import { startTestService, type TestService } from './support/service.js';
import { until } from './support/until.js';

const HOUR = 3_600_000;
const BEGIN = '2028-03-01T00:00:00.000000Z';

let service: TestService;
let clock = BEGIN;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => clock });
});
afterAll(() => service.close());

const after = (hours: number): Instant => addMillis(BEGIN, hours * HOUR);
const sample = () => sampleVolumes(service.ctx, new AbortController().signal);

async function accrualsOf(volumeId: string): Promise<[Instant, Instant, number][]> {
  const { rows } = await service.ctx.pool.query(
    'select from_at, to_at, used_mib::float8 from accruals where volume_id = $1 order by from_at',
    [volumeId],
  );
  return rows.map(({ from_at, to_at, used_mib }) => [from_at, to_at, used_mib]);
}

test('a volume is read every interval; a reading ends at the next, at the deletion, or after two intervals', async () => {
  clock = BEGIN;
  const client = await service.newOrg();
  const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
  const { body: empty } = await client.post('/v1/volumes', { name: 'never-used' });
  const data = await service.ctx.volumes.ensure(client.org.id, volume.id);
  const shown = async () =>
    (await client.get('/v1/volumes')).body.find(({ id }: any) => id === volume.id).used_bytes;

  writeFileSync(join(data, 'one'), Buffer.alloc(1024 * 1024, 'x'));
  clock = after(0.9);
  await sample();
  expect([await accrualsOf(volume.id), await shown()]).toEqual([[], null]);

  clock = after(1);
  await sample();
  const [[from, to, first]] = (await accrualsOf(volume.id)) as [[Instant, Instant, number]];
  expect([from, to]).toEqual([after(1), after(3)]);
  expect(first).toBeGreaterThanOrEqual(1);
  expect(await shown()).toBe(first * 1024 * 1024);

  // Links to it and to what lies outside weigh nothing.
  linkSync(join(data, 'one'), join(data, 'again'));
  symlinkSync('/usr', join(data, 'usr'));
  mkdirSync(join(data, 'deep'));
  writeFileSync(join(data, 'deep', 'two'), Buffer.alloc(2 * 1024 * 1024, 'y'));
  clock = after(1.5);
  await sample();
  expect(await accrualsOf(volume.id)).toHaveLength(1);
  clock = after(2.25);
  await sample();
  const both = await accrualsOf(volume.id);
  expect(both.map(([begin, end]) => [begin, end])).toEqual([
    [after(1), after(2.25)],
    [after(2.25), after(4.25)],
  ]);
  expect(both[1]![2] - first).toBeGreaterThanOrEqual(2);
  expect(both[1]![2] - first).toBeLessThan(2.1);

  // Nobody reads for a long time: the last reading stands for two intervals and no longer.
  clock = after(9);
  await sample();
  expect((await accrualsOf(volume.id))[1]![1]).toBe(after(4.25));

  clock = after(9.5);
  await client.delete(`/v1/volumes/${volume.id}`);
  expect((await accrualsOf(volume.id)).at(-1)!.slice(0, 2)).toEqual([after(9), after(9.5)]);
  clock = after(11);
  await sample();
  expect(await accrualsOf(volume.id)).toHaveLength(3);
  await client.post(`/v1/volumes/${volume.id}/restore`, {});
  await sample();
  expect((await accrualsOf(volume.id)).at(-1)!.slice(0, 2)).toEqual([after(11), after(13)]);
  expect(await accrualsOf(empty.id)).toEqual([]);

  const usage = await client.get('/v1/billing/usage/storage', { since: '2028-03-01', until: after(11) });
  const mib = both[1]![2];
  expect(usage.body.rows[0].mib_seconds).toBeCloseTo(3600 * (first * 1.25 + mib * 2 + mib * 0.5), 3);
  const { body: summary } = await client.get('/v1/billing/usage');
  expect(summary.storage_gib).toBeCloseTo(mib / 1024, 9);
});

test('of two workers each reads others', async () => {
  clock = after(100);
  const client = await service.newOrg();
  const ids: string[] = [];
  for (let index = 0; index < 25; index += 1) {
    const { body } = await client.post('/v1/volumes', { name: `v-${index}` });
    ids.push(body.id);
    await service.ctx.volumes.ensure(client.org.id, body.id);
  }
  clock = after(102);
  await Promise.all([sample(), sample()]);
  for (const id of ids) expect(await accrualsOf(id)).toHaveLength(1);
});

test('whichever way clocks go, intervals of a volume never overlap and each begins with a reading', async () => {
  const moment = fc.integer({ min: 0, max: 20 }).map((step) => BigInt(step) * 1_800_000_000n);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(moment, fc.nat(3)), { maxLength: 12 }), async (readings) => {
      clock = BEGIN;
      const client = await service.newOrg();
      const { id } = (await client.get('/v1/volumes/default')).body;
      const at = (micros: bigint) => instantFromMicros(microsOf(BEGIN) + micros);
      const taken = new Map<bigint, number>();
      for (const [when, kib] of readings) {
        taken.set(when, kib);
        await insertReading(service.ctx.pool, client.org.id, id, {
          ...{ at: at(when), kib },
          until: at(when + 7_200_000_000n),
        });
      }
      const order = [...taken.keys()].toSorted((a, b) => (a < b ? -1 : 1));
      const expected = order.map((when, index) => {
        const end = when + 7_200_000_000n;
        const next = order[index + 1] ?? end;
        return [at(when), at(next < end ? next : end), taken.get(when)! / 1024];
      });
      expect(await accrualsOf(id)).toEqual(expected);
    }),
    { numRuns: 60 },
  );
}, 180_000);

test('the worker does it', async () => {
  const live = await startTestService({ settings: { volumeSampleMs: 200 } });
  try {
    const client = await live.newOrg();
    const { body } = await client.post('/v1/volumes', { name: 'data' });
    await live.ctx.volumes.ensure(client.org.id, body.id);
    const find = async () => (await client.get('/v1/volumes')).body.find(({ id }: any) => id === body.id);
    await until(find, ({ used_bytes }) => used_bytes !== null);
  } finally {
    await live.close();
  }
});
