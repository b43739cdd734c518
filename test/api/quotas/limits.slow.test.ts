import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildApp } from '../../../src/app.js';
import { operator } from '../../../src/audit/events/actor.js';
import { openPool } from '../../../src/db/pool.js';
import { listen } from '../../../src/http/listen.js';
import type { Limits } from '../../../src/quotas/limits.js';
import { setQuotas } from '../../../src/quotas/set.js';
import type { Answer } from '../../support/answer.js';
import { makeClient, type Client } from '../../support/client.js';
import { clientOf, importAll, line } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

const running = { start: true, wait_for: 'running', wait_timeout: 20 };

/** A new organization with these quotas. */
async function orgWith(limits: Partial<Limits>, of = service): Promise<Client> {
  const client = await of.newOrg();
  await setQuotas(of.ctx.pool, client.org.id, limits, operator('test'));
  return client;
}

function expectExceeded(answer: Answer, quota: string, limit: number | null, used: unknown): void {
  expect([answer.status, answer.body.error?.code, answer.body.error?.details], answer.text).toEqual([
    403,
    'quota_exceeded',
    { quota, limit, used },
  ]);
}

const countOf = (answers: Answer[], status: number) =>
  answers.filter((answer) => answer.status === status).length;

async function usageOf(client: Client): Promise<any> {
  return (await client.get('/v1/quotas')).body;
}

describe('concurrent requests', () => {
  test('create exactly ten sandboxes from a thousand creates through two services under a quota of ten', async () => {
    const client = await orgWith({ max_sandboxes: 10 });
    const pool = openPool(service.database, () => undefined);
    const second = await buildApp({ ...service.ctx, pool });
    const other = makeClient(await listen(second, { host: '127.0.0.1', port: 0 }), client);
    try {
      const answers = await Promise.all(
        Array.from({ length: 1_000 }, (_, index) =>
          (index % 2 === 0 ? client : other).post('/v1/sandboxes', smallRequest(`many-${index}`)),
        ),
      );
      expect([countOf(answers, 200), countOf(answers, 403)]).toEqual([10, 990]);
      expectExceeded(
        answers.find(({ status }) => status === 403)!,
        'max_sandboxes',
        10,
        10,
      );
      expect((await client.get('/v1/sandboxes', { limit: 100 })).body.data).toHaveLength(10);
      expect((await usageOf(client)).total_sandboxes).toBe(10);
      const events = await client.get('/v1/events', { event_type: 'sandbox_created', limit: 100 });
      expect(events.body.data).toHaveLength(10);
    } finally {
      await second.close();
      await pool.end();
    }
  });

  test.each([
    ['max_concurrent_persistent_running', 'concurrent_persistent_running', false],
    ['max_concurrent_ephemeral_running', 'concurrent_ephemeral_running', true],
  ] as const)('start exactly as many sandboxes as %s allows', async (quota, count, ephemeral) => {
    const client = await orgWith({ [quota]: 3 });
    const lifecycle = { ephemeral };
    const made = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        client.post('/v1/sandboxes', smallRequest(`start-${index}`, { lifecycle })),
      ),
    );
    const answers = await Promise.all(
      made.map(({ body }) => client.post(`/v1/sandboxes/${body.id}/start`, {})),
    );
    expect([countOf(answers, 200), countOf(answers, 403)]).toEqual([3, 17]);
    expectExceeded(
      answers.find(({ status }) => status === 403)!,
      quota,
      3,
      3,
    );
    expect((await usageOf(client))[count]).toBe(3);
    // A create with a start counts the same way. Sandboxes of the other kind do not count.
    const more = await client.post('/v1/sandboxes', smallRequest('more', { lifecycle }), { start: true });
    expectExceeded(more, quota, 3, 3);
    const others = smallRequest('others', { lifecycle: { ephemeral: !ephemeral } });
    expect((await client.post('/v1/sandboxes', others, { start: true })).status).toBe(200);
    // A stop frees its slot.
    const started = answers.find(({ status }) => status === 200)!.body.id;
    await client.post(`/v1/sandboxes/${started}/stop`, {});
    const idle = answers.findIndex(({ status }) => status === 403);
    expect((await client.post(`/v1/sandboxes/${made[idle]!.body.id}/start`, {})).status).toBe(200);
  });

  test('keep the caps of all volumes within the total storage, for creates and updates', async () => {
    const client = await orgWith({ max_total_storage_gib: 7 });
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        client.post('/v1/volumes', { name: `volume-${index}`, capacity_gib: index < 15 ? 1 : 2 }),
      ),
    );
    const sum = (list: Answer[]) =>
      list.reduce((total, { body }) => total + (body.capacity_bytes ?? 0) / 1024 ** 3, 0);
    const made = answers.filter(({ status }) => status === 200);
    expect(sum(made)).toBeLessThanOrEqual(7);
    // A refused volume did not fit: the sum is at most one short of the limit for the larger volumes.
    expect(sum(made)).toBeGreaterThanOrEqual(6);
    const grown = await Promise.all(
      made.map(({ body }) => client.patch(`/v1/volumes/${body.id}`, { capacity_gib: 3 })),
    );
    expect(countOf(grown, 200)).toBeLessThanOrEqual(1);
    const list = await client.get('/v1/volumes');
    expect(sum(list.body.map((body: unknown) => ({ body })))).toBeLessThanOrEqual(7);
    // A volume without a cap could grow without limit. A deleted volume counts until its purge, because a caller can
    // restore it.
    const uncapped = [
      await client.post('/v1/volumes', { name: 'uncapped' }),
      await client.patch(`/v1/volumes/${made[0]!.body.id}`, { capacity_gib: null }),
    ];
    for (const { status, body } of uncapped) {
      expect([status, body.error.details]).toEqual([
        403,
        { quota: 'max_total_storage_gib', limit: 7, used: null },
      ]);
    }
    for (const { body } of made) await client.delete(`/v1/volumes/${body.id}`);
    const refused = await client.post('/v1/volumes', { name: 'late', capacity_gib: 7 });
    expect([refused.status, refused.body.error.details.quota]).toEqual([403, 'max_total_storage_gib']);
    for (const { body } of made) {
      expect((await client.post(`/v1/volumes/${body.id}/restore`)).status).toBe(200);
    }
  });
});

describe('each limit', () => {
  test('on the disk applies to the start of a sandbox without a disk size as to its create', async () => {
    const client = await orgWith({});
    const { body } = await client.post('/v1/sandboxes', smallRequest('open'));
    await setQuotas(
      service.ctx.pool,
      client.org.id,
      { max_disk_size_mib_per_sandbox: 100 },
      operator('test'),
    );
    const answer = await client.post(`/v1/sandboxes/${body.id}/start`, {});
    expect([answer.status, answer.body.error.details.quota]).toEqual([403, 'max_disk_size_mib_per_sandbox']);
  });

  test('on storage is also the included storage under a hard cap', async () => {
    const client = await orgWith({ hard_cap: true, included_storage_gib: 2, max_total_storage_gib: 5 });
    expect((await client.post('/v1/volumes', { name: 'a', capacity_gib: 2 })).status).toBe(200);
    expect((await client.post('/v1/volumes', { name: 'b', capacity_gib: 1 })).status).toBe(403);
  });

  test('on the number of sandboxes leaves room again after a delete', async () => {
    const client = await orgWith({ max_sandboxes: 1 });
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('only'));
    expectExceeded(await client.post('/v1/sandboxes', smallRequest('more')), 'max_sandboxes', 1, 1);
    await client.delete(`/v1/sandboxes/${made.id}`);
    expect((await client.post('/v1/sandboxes', smallRequest('more'))).status).toBe(200);
    await setQuotas(service.ctx.pool, client.org.id, { max_sandboxes: 0 }, operator('test'));
    expectExceeded(await client.post('/v1/sandboxes', smallRequest('third')), 'max_sandboxes', 0, 1);
    await setQuotas(service.ctx.pool, client.org.id, { max_sandboxes: null }, operator('test'));
    expect((await client.post('/v1/sandboxes', smallRequest('third'))).status).toBe(200);
  });

  test('on the size of one sandbox applies at create and at start', async () => {
    const limits = {
      max_vcpus_per_sandbox: 2,
      max_memory_mib_per_sandbox: 600,
      max_disk_size_mib_per_sandbox: 1_000,
    };
    const client = await orgWith(limits);
    for (const [resources, quota] of [
      [{ vcpus: 3 }, 'max_vcpus_per_sandbox'],
      [{ memory_mib: 601 }, 'max_memory_mib_per_sandbox'],
      [{ disk_size_mib: 1_001 }, 'max_disk_size_mib_per_sandbox'],
    ] as const) {
      const refused = await client.post('/v1/sandboxes', smallRequest('large', { resources }));
      expectExceeded(refused, quota, limits[quota], Object.values(resources)[0]);
    }
    const fitting = { vcpus: 2, memory_mib: 600, disk_size_mib: 1_000 };
    const made = await client.post('/v1/sandboxes', smallRequest('fits', { resources: fitting }));
    expect(made.body.spec.resources).toEqual(fitting);
    await setQuotas(service.ctx.pool, client.org.id, { max_vcpus_per_sandbox: 1 }, operator('test'));
    const start = await client.post(`/v1/sandboxes/${made.body.id}/start`, {});
    expectExceeded(start, 'max_vcpus_per_sandbox', 1, 2);
  });

  test('on the disk is the default disk size', async () => {
    const client = await orgWith({ max_disk_size_mib_per_sandbox: 2_000 });
    const made = await client.post('/v1/sandboxes', smallRequest('open-disk'));
    expect(made.body.spec.resources.disk_size_mib).toBe(2_000);
    await setQuotas(service.ctx.pool, client.org.id, { max_disk_size_mib_per_sandbox: 0 }, operator('test'));
    const refused = await client.post('/v1/sandboxes', smallRequest('no-disk'));
    expectExceeded(refused, 'max_disk_size_mib_per_sandbox', 0, null);
  });

  test.each([
    [null, null, null],
    [null, 90, 90],
    [1, null, 60],
    [1, 90, 60],
    [2, 90, 90],
  ])(
    'on the uptime (%s minutes) and max_duration_secs (%s): the run gets the smaller',
    async (minutes, secs, kept) => {
      const client = await orgWith({ max_uptime_minutes_per_sandbox: minutes });
      const request = smallRequest('timed', { lifecycle: { max_duration_secs: secs } });
      const { body } = await client.post('/v1/sandboxes', request, { start: true });
      const { rows } = await service.ctx.pool.query(
        'select max_duration_secs from runs where org_id = $1 and sandbox_id = $2',
        [client.org.id, body.id],
      );
      expect(rows).toEqual([{ max_duration_secs: kept }]);
      expect(body.spec.lifecycle.max_duration_secs).toBe(secs);
    },
  );

  test('on the uptime ends a run', async () => {
    const client = await orgWith({ max_uptime_minutes_per_sandbox: 0 });
    const { body } = await client.post('/v1/sandboxes', smallRequest('brief'), { start: true });
    await untilStatus(client, body.id, 'stopped');
    const events = await client.get('/v1/events', { event_type: 'sandbox_stop_requested' });
    expect(events.body.data.map(({ payload }: any) => payload.reason)).toEqual(['max_duration_exceeded']);
  });

  test('stays the same for a suspended organization, which can create and stop but not start', async () => {
    const client = await orgWith({ is_suspended: true });
    const refused = await client.post('/v1/sandboxes', smallRequest('asleep'), { start: true });
    expectExceeded(refused, 'is_suspended', null, null);
    const { status, body } = await client.post('/v1/sandboxes', smallRequest('asleep'));
    expect(status).toBe(200);
    expectExceeded(await client.post(`/v1/sandboxes/${body.id}/start`, {}), 'is_suspended', null, null);
    expect((await usageOf(client)).is_suspended).toBe(true);
    await setQuotas(service.ctx.pool, client.org.id, { is_suspended: false }, operator('test'));
    expect((await client.post(`/v1/sandboxes/${body.id}/start`, {})).status).toBe(200);
  });
});

describe('the hours of the month', () => {
  const NOW = '2026-05-10T12:00:00.000001Z';
  let frozen: TestService;
  beforeAll(async () => {
    frozen = await startTestService({ worker: false, now: () => NOW });
  });
  afterAll(() => frozen.close());

  async function addRun(of: TestService, orgId: string, sandboxId: string, run: unknown[]): Promise<void> {
    await of.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, $4, $5, 1024, $6, $7, case when $7::timestamptz is not null then 'imported' end)`,
      [orgId, uuidv7(), sandboxId, ...run],
    );
  }

  test('are those of its runs, cut at its start and at now, to the microsecond', async () => {
    const client = await orgWith({}, frozen);
    const { body } = await client.post('/v1/sandboxes', smallRequest('worker'));
    for (const run of [
      [3, 1024, '2026-04-30T22:00:00Z', '2026-05-01T02:00:00Z'],
      [1, 512, '2026-05-02T00:00:00.000001Z', '2026-05-02T00:30:00.000002Z'],
      [5, 4096, '2026-03-01T00:00:00Z', '2026-04-30T23:59:59.999999Z'],
      [7, 7, '2026-05-01T00:00:00Z', '2026-05-01T00:00:00Z'],
      [7, 7, '2026-05-10T12:00:01Z', '2026-05-11T00:00:00Z'],
      [2, 2048, '2026-05-10T11:00:00Z', null],
    ]) {
      await addRun(frozen, client.org.id, body.id, run);
    }
    const micros = [
      [3n, 1024n, 7_200_000_000n],
      [1n, 512n, 1_800_000_001n],
      [2n, 2048n, 3_600_000_001n],
    ] as const;
    const vcpu = micros.reduce((sum, [vcpus, , time]) => sum + vcpus * time, 0n);
    const memory = micros.reduce((sum, [, mib, time]) => sum + mib * time, 0n);
    const usage = await usageOf(client);
    expect(usage.vcpu_hours_used).toBeCloseTo(Number(vcpu) / 3.6e9, 12);
    expect(usage.memory_gib_hours_used).toBeCloseTo(Number(memory) / 1024 / 3.6e9, 12);
    expect([usage.hard_cap, usage.pool_exhausted, usage.included_vcpu_hours]).toEqual([false, false, null]);
  });

  test('refuse starts once used up, only under a hard cap', async () => {
    for (const [limits, exhausted] of [
      [{ hard_cap: true, included_vcpu_hours: 2 }, 'included_vcpu_hours'],
      [{ hard_cap: true, included_memory_gib_hours: 1 }, 'included_memory_gib_hours'],
      [{ hard_cap: true, included_vcpu_hours: 3, included_memory_gib_hours: 2 }, null],
      [{ hard_cap: true, included_disk_gib_hours: 1 }, 'included_disk_gib_hours'],
      [{ hard_cap: true, included_disk_gib_hours: 2, included_storage_gib: 0 }, null],
      [{ hard_cap: false, included_vcpu_hours: 0, included_memory_gib_hours: 0 }, null],
    ] as const) {
      const client = await orgWith(limits, frozen);
      const { body } = await client.post('/v1/sandboxes', smallRequest('worker'));
      await addRun(frozen, client.org.id, body.id, [2, 1024, '2026-05-02T00:00:00Z', '2026-05-02T01:00:00Z']);
      const start = await client.post(`/v1/sandboxes/${body.id}/start`, {});
      expect((await usageOf(client)).pool_exhausted).toBe(exhausted !== null);
      if (exhausted === null) expect(start.status, start.text).toBe(200);
      else expectExceeded(start, exhausted, limits[exhausted as never], exhausted.includes('vcpu') ? 2 : 1);
    }
  });

  test('stop running sandboxes once used up, and the audit trail has the reason', async () => {
    const client = await orgWith({});
    const names = ['one', 'two'];
    const made = await Promise.all(
      names.map((name) => client.post('/v1/sandboxes', smallRequest(name), running)),
    );
    const bystander = await orgWith({ hard_cap: true, included_vcpu_hours: 1_000 });
    const { body: untouched } = await bystander.post('/v1/sandboxes', smallRequest('free'), running);
    await setQuotas(
      service.ctx.pool,
      client.org.id,
      { hard_cap: true, included_vcpu_hours: 0 },
      operator('test'),
    );
    for (const { body } of made) await untilStatus(client, body.id, 'stopped');
    const events = await client.get('/v1/events', { event_type: 'sandbox_stop_requested' });
    expect(events.body.data.map(({ actor, payload }: any) => [actor.code, payload.reason])).toEqual([
      ['quotas', 'quota_exhausted'],
      ['quotas', 'quota_exhausted'],
    ]);
    expect((await bystander.get(`/v1/sandboxes/${untouched.id}`)).body.status).toBe('running');
    expectExceeded(
      await client.post(`/v1/sandboxes/${made[0]!.body.id}/start`, {}),
      'included_vcpu_hours',
      0,
      (await usageOf(client)).vcpu_hours_used,
    );
  });
});

test('an organization without quotas has no limits but that of ports of the machine, and the answer says so', async () => {
  const client = await service.newOrg();
  expect(await usageOf(client)).toEqual({
    hard_cap: false,
    vcpu_hours_used: 0,
    memory_gib_hours_used: 0,
    disk_gib_hours_used: 0,
    pool_exhausted: false,
    is_suspended: false,
    total_sandboxes: 0,
    concurrent_ephemeral_running: 0,
    concurrent_persistent_running: 0,
    included_vcpu_hours: null,
    included_memory_gib_hours: null,
    included_disk_gib_hours: null,
    included_storage_gib: null,
    max_sandboxes: null,
    max_concurrent_ephemeral_running: null,
    max_concurrent_persistent_running: null,
    max_vcpus_per_sandbox: null,
    max_memory_mib_per_sandbox: null,
    max_disk_size_mib_per_sandbox: null,
    max_uptime_minutes_per_sandbox: null,
    max_total_storage_gib: null,
    published_ports: 0,
    max_published_ports: 256,
    snapshots: 0,
    snapshot_gib_used: 0,
    max_snapshots: null,
    max_snapshot_gib: null,
  });
});

test('an imported organization has quotas too, and its imported running sandboxes use no slot', async () => {
  const org = line.org();
  await importAll(service, [org, line.sandbox(org, { status: 'running' })]);
  const client = await clientOf(service, org);
  const limits = { max_sandboxes: 2, max_concurrent_persistent_running: 1 };
  await setQuotas(service.ctx.pool, client.org.id, limits, operator('test'));
  expect(await usageOf(client)).toMatchObject({ total_sandboxes: 1, concurrent_persistent_running: 0 });
  expect((await client.post('/v1/sandboxes', smallRequest('second'), { start: true })).status).toBe(200);
  expectExceeded(await client.post('/v1/sandboxes', smallRequest('third')), 'max_sandboxes', 2, 2);
});

test('any operations in any order leave the counters of a simple model', async () => {
  const still = await startTestService({ worker: false });
  const step = fc.oneof(
    fc.record({ kind: fc.constant('create' as const), start: fc.boolean(), ephemeral: fc.boolean() }),
    fc.record({ kind: fc.constantFrom('start', 'stop', 'delete'), which: fc.nat({ max: 5 }) }),
  );
  try {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          max_sandboxes: fc.option(fc.nat({ max: 4 })),
          max_concurrent_ephemeral_running: fc.option(fc.nat({ max: 2 })),
          max_concurrent_persistent_running: fc.option(fc.nat({ max: 2 })),
        }),
        fc.array(step, { maxLength: 14 }),
        async (limits, steps) => {
          const client = await orgWith(limits, still);
          const model: { id: string; ephemeral: boolean; status: string }[] = [];
          const runs = (ephemeral: boolean) =>
            model.filter((one) => one.ephemeral === ephemeral && one.status === 'starting').length;
          const mayStart = (ephemeral: boolean) =>
            runs(ephemeral) <
            (limits[ephemeral ? 'max_concurrent_ephemeral_running' : 'max_concurrent_persistent_running'] ??
              Infinity);
          for (const [index, action] of steps.entries()) {
            if ('start' in action) {
              const { start, ephemeral } = action;
              const request = smallRequest(`s-${index}`, { lifecycle: { ephemeral } });
              const answer = await client.post('/v1/sandboxes', request, { start });
              const fits =
                model.length < (limits.max_sandboxes ?? Infinity) && (!start || mayStart(ephemeral));
              expect(answer.status).toBe(fits ? 200 : 403);
              if (fits) model.push({ id: answer.body.id, ephemeral, status: start ? 'starting' : 'created' });
              continue;
            }
            const target = model[action.which];
            if (!target) continue;
            if (action.kind === 'delete') {
              expect((await client.delete(`/v1/sandboxes/${target.id}`)).status).toBe(200);
              model.splice(action.which, 1);
              continue;
            }
            const { status } = await client.post(`/v1/sandboxes/${target.id}/${action.kind}`, {});
            if (action.kind === 'stop') {
              expect(status).toBe(target.status === 'created' ? 409 : 200);
              if (target.status === 'starting') target.status = 'stopping';
            } else if (target.status === 'created') {
              const fits = mayStart(target.ephemeral);
              expect(status).toBe(fits ? 200 : 403);
              if (fits) target.status = 'starting';
            } else {
              expect(status).toBe(target.status === 'starting' ? 200 : 409);
            }
          }
          expect(await usageOf(client)).toMatchObject({
            total_sandboxes: model.length,
            concurrent_ephemeral_running: runs(true),
            concurrent_persistent_running: runs(false),
          });
        },
      ),
      { numRuns: 25 },
    );
  } finally {
    await still.close();
  }
});

test('a change of quotas records an audit event, an unchanged value none', async () => {
  const client = await service.newOrg();
  const set = (limits: Partial<Limits>) =>
    setQuotas(service.ctx.pool, client.org.id, limits, operator('quota set'));
  await set({ max_sandboxes: 5, hard_cap: true });
  await set({ max_sandboxes: 5, hard_cap: true });
  await set({ max_sandboxes: null });
  const events = await until(
    () => client.get('/v1/events', { event_type: 'quota_changed' }),
    ({ body }) => body.data.length > 0,
  );
  expect(events.body.data.map(({ category, payload }: any) => [category, payload])).toEqual([
    ['quota', { before: { max_sandboxes: 5 }, after: { max_sandboxes: null } }],
    [
      'quota',
      { before: { max_sandboxes: null, hard_cap: false }, after: { max_sandboxes: 5, hard_cap: true } },
    ],
  ]);
});
