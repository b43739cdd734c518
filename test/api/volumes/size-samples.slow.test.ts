import fc from 'fast-check';
import { chmodSync, linkSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import { addMillis, instantFromMicros, microsOf, type Instant } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import { claimUnsampled, insertReading } from '../../../src/volumes/accrual-queries.js';
import { sampleVolumes } from '../../../src/volumes/sample.js';
import { measure } from '../../../src/volumes/storage/disk-usage.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const HOUR = 3_600_000;
/** The wait for results that take milliseconds on an idle machine. */
const LONG = 50_000;
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

test('a volume is measured every interval; an accrual ends at the next one, at the deletion, or after two intervals', async () => {
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

  // Hard links to one file count once, and symlinks count nothing.
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

  // Without further measurements an accrual ends after two intervals.
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

/** Holds the measurements of these volumes, like a network share that does not respond. */
function holdReadings(held: (orgId: string, volumeId: string) => boolean): {
  begun: string[];
  release(): void;
  undo(): void;
} {
  const { volumes } = service.ctx;
  const real = volumes.measure.bind(volumes);
  const gate = new AbortController();
  const begun: string[] = [];
  volumes.measure = async (orgId, volumeId, signal) => {
    if (held(orgId, volumeId)) {
      begun.push(volumeId);
      await sleep(600_000, AbortSignal.any([signal, gate.signal]));
    }
    return real(orgId, volumeId, signal);
  };
  return { begun, release: () => gate.abort(), undo: () => (volumes.measure = real) };
}

async function makeVolumes(count: number): Promise<{ client: Client; ids: string[] }> {
  const client = await service.newOrg();
  const ids: string[] = [];
  for (let index = 0; index < count; index += 1) {
    const { body } = await client.post('/v1/volumes', { name: `v-${index}` });
    ids.push(body.id);
    await service.ctx.volumes.ensure(client.org.id, body.id);
  }
  return { client, ids };
}

const warnings = () =>
  service.logs.map((text) => JSON.parse(text)).filter(({ msg }) => msg.startsWith('cannot measure a volume'));

test('an organization with slow volumes has one measured at a time, and delays no other organization', async () => {
  clock = after(200);
  const slow = await Promise.all([makeVolumes(3), makeVolumes(3), makeVolumes(3)]);
  const quick = await makeVolumes(10);
  clock = after(202);
  const slowOnes = new Set(slow.map(({ client }) => client.org.id));
  const held = holdReadings((orgId) => slowOnes.has(orgId));
  try {
    const pass = sample();
    for (const id of quick.ids) {
      await until(
        () => accrualsOf(id),
        (accruals) => accruals.length === 1,
        LONG,
      );
    }
    expect(held.begun).toHaveLength(3);
    // Volumes that become due meanwhile are measured, too.
    clock = after(203.5);
    for (const id of quick.ids) {
      await until(
        () => accrualsOf(id),
        (accruals) => accruals.length === 2,
        LONG,
      );
    }
    expect(held.begun).toHaveLength(3);
    held.release();
    await pass;
    for (const id of slow.flatMap(({ ids }) => ids)) expect(await accrualsOf(id)).toHaveLength(1);
  } finally {
    held.release();
    held.undo();
  }
});

test('when slow volumes fill every slot, the time-out of one lets all fast ones through', async () => {
  clock = after(300);
  const slow = await Promise.all(Array.from({ length: 5 }, () => makeVolumes(3)));
  const quick = await makeVolumes(10);
  clock = after(302);
  const slowOnes = new Set(slow.map(({ client }) => client.org.id));
  const held = holdReadings((orgId) => slowOnes.has(orgId));
  const { settings } = service.ctx;
  const before = settings.volumeSampleMs;
  // A measurement may take a twelfth of the interval: ten seconds, since a busy machine may need some for a fast one.
  settings.volumeSampleMs = 120_000;
  try {
    const pass = sample();
    for (const id of quick.ids)
      await until(
        () => accrualsOf(id),
        (accruals) => accruals.length === 1,
        LONG,
      );
    expect(held.begun.length).toBeLessThan(15);
    held.release();
    await pass;
    expect(held.begun).toEqual(expect.arrayContaining(slow.flatMap(({ ids }) => ids)));
  } finally {
    held.release();
    held.undo();
    settings.volumeSampleMs = before;
  }
});

test('a volume whose measurement times out is named in a warning, and retried after a sixth of the interval', async () => {
  clock = after(400);
  const { client, ids } = await makeVolumes(1);
  const [id] = ids as [string];
  clock = after(402);
  const { settings } = service.ctx;
  const before = settings.volumeSampleMs;
  // A measurement may take a twelfth of the interval: five seconds, since a busy machine may need some for a fast one.
  settings.volumeSampleMs = 60_000;
  const held = holdReadings((_, volumeId) => volumeId === id);
  try {
    await sample();
    const about = warnings().filter(({ volumeId }) => volumeId === id);
    expect(about).toMatchObject([{ level: 40, orgId: client.org.id }]);
    clock = addMillis(after(402), 9_999);
    await sample();
    expect(held.begun).toHaveLength(1);
    held.release();
    clock = addMillis(after(402), 10_000);
    await sample();
    expect(held.begun).toHaveLength(2);
    expect(await accrualsOf(id)).toHaveLength(1);
  } finally {
    held.undo();
    settings.volumeSampleMs = before;
  }
});

test('a volume claimed by a dead process is measured after a sixth of the interval', async () => {
  clock = after(500);
  const { ids } = await makeVolumes(1);
  const [id] = ids as [string];
  clock = after(502);
  const held = holdReadings((_, volumeId) => volumeId === id);
  const ending = new AbortController();
  const passes = (async () => {
    while (!ending.signal.aborted) await sampleVolumes(service.ctx, ending.signal);
  })();
  try {
    await until(
      async () => held.begun,
      (begun) => begun.length === 1,
      LONG,
    );
  } finally {
    ending.abort();
    await passes;
    held.undo();
  }
  clock = after(502 + 9 / 60);
  await sample();
  expect(await accrualsOf(id)).toEqual([]);
  clock = after(502 + 10 / 60);
  await sample();
  expect(await accrualsOf(id)).toHaveLength(1);
});

test('two workers measure different volumes', async () => {
  clock = after(100);
  const { ids } = await makeVolumes(25);
  clock = after(102);
  await Promise.all([sample(), sample()]);
  for (const id of ids) expect(await accrualsOf(id)).toHaveLength(1);
});

test('the query claims one volume at a time under any plan of the database', async () => {
  // The planner may choose any of these as tables grow and statistics change.
  const plans = ['', 'hashjoin', 'mergejoin', 'nestloop', 'indexscan', 'seqscan', 'material'];
  // Without statistics about an organization the planner expects one row. Under that plan the query once claimed two
  // volumes.
  for (let index = 0; index < 40; index += 1) await makeVolumes(1);
  await service.ctx.pool.query('analyze volumes');
  for (const avoided of plans) {
    clock = after(600);
    const { client, ids } = await makeVolumes(3);
    const all = [...ids, (await client.get('/v1/volumes/default')).body.id];
    await inTransaction(service.ctx.pool, async (tx) => {
      if (avoided !== '') await tx.query(`set local enable_${avoided} = off`);
      const taken: (string | undefined)[] = [];
      for (const _ of all) taken.push(await claimUnsampled(tx, client.org.id, after(601), after(602)));
      expect(new Set(taken), `without ${avoided}`).toEqual(new Set(all));
      expect(await claimUnsampled(tx, client.org.id, after(601), after(602))).toBe(undefined);
    });
  }
});

test('a deletion ends the accruals, also one of the same instant or of a worker whose clock is ahead', async () => {
  for (const ahead of [0, 500]) {
    clock = BEGIN;
    const client = await service.newOrg();
    const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
    const read = async (hours: number) => {
      const at = addMillis(after(hours), ahead);
      const reading = { at, until: addMillis(at, 2 * HOUR), kib: 1024 };
      await insertReading(service.ctx.pool, client.org.id, volume.id, reading);
      return at;
    };
    const [first, last] = [await read(1), await read(2)];
    clock = after(2);
    await client.delete(`/v1/volumes/${volume.id}`);
    expect(await accrualsOf(volume.id)).toEqual([
      [first, after(2), 1],
      [last, last, 1],
    ]);
    clock = after(100);
    const usage = await client.get('/v1/billing/usage/storage', { since: BEGIN, until: after(100) });
    expect(usage.body.rows[0].mib_seconds).toBeCloseTo(3600 - ahead / 1000, 6);
  }
});

test('an unreadable directory makes a measurement fail instead of counting less', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-measure-'));
  const asNobody = async () => {
    const root = process.getuid?.() === 0;
    if (root) process.seteuid!(65_534);
    try {
      return await measure(directory, new AbortController().signal);
    } finally {
      if (root) process.seteuid!(0);
    }
  };
  try {
    chmodSync(directory, 0o755);
    writeFileSync(join(directory, 'open'), Buffer.alloc(1024 * 1024, 'x'));
    const seen = await asNobody();
    expect(seen).toBeGreaterThanOrEqual(1024);

    const closed = join(directory, 'closed');
    mkdirSync(closed);
    writeFileSync(join(closed, 'large'), Buffer.alloc(4 * 1024 * 1024, 'x'));
    chmodSync(closed, 0);
    await expect(asNobody()).rejects.toThrow(/^du ended with 1: .*Permission denied$/);

    // A name is not parsed as an error message, and a long error output is handled alike.
    for (let index = 0; index < 10_000; index += 1) {
      mkdirSync(join(directory, `${index}\nx: No such file or directory`), { mode: 0 });
    }
    const error: Error = await asNobody().then(
      () => expect.fail('a sum without all of it'),
      (reason: Error) => reason,
    );
    expect(error.message).toMatch(/Permission denied$/);
    expect(error.message.length).toBeLessThan(250);
    chmodSync(closed, 0o755);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  expect(await asNobody()).toBeUndefined();
});

test('the accruals of a volume never overlap under any clocks, and each starts with a measurement', async () => {
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
          at: at(when),
          kib,
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
    { numRuns: 30 },
  );
});

test('the worker measures volumes', async () => {
  const live = await startTestService({ settings: { volumeSampleMs: 3_000 } });
  try {
    const client = await live.newOrg();
    const { body } = await client.post('/v1/volumes', { name: 'data' });
    await live.ctx.volumes.ensure(client.org.id, body.id);
    const find = async () => (await client.get('/v1/volumes')).body.find(({ id }: any) => id === body.id);
    const { used_bytes } = await until(find, (volume) => volume.used_bytes !== null);
    expect(used_bytes).toBeGreaterThanOrEqual(0);
  } finally {
    await live.close();
  }
});
