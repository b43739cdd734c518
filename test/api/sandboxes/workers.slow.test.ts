import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import { parseInstant } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { removeWorker } from '../../../src/sandboxes/reconcile/remove-worker.js';
import { loseSnapshots } from '../../../src/snapshots/purge.js';
import { LeaseLostError, WorkerLease } from '../../../src/workers/lease.js';
import { hasEnded, makeHolderName } from '../../../src/workers/process-identity.js';
import { readSimulated } from '../../crash/support/engine-journal.js';
import type { Client } from '../../support/client.js';
import { startForTest, type TestOptions, type TestService } from '../../support/service.js';
import { insertWorker } from '../../support/insert-worker.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

const running = { start: true, wait_for: 'running' };
const LEASE_MS = 4_000;

async function start(options: TestOptions = {}): Promise<TestService> {
  return startForTest({ ...options, settings: { workerLeaseMs: LEASE_MS, ...options.settings } });
}

async function workerOf({ ctx }: TestService, id: string): Promise<string | null> {
  const { rows } = await ctx.pool.query('select worker_id from sandboxes where id = $1', [id]);
  return rows[0]?.worker_id;
}

/** Every start in the journal of a simulated engine: run and time. */
function startsIn({ directory }: TestService): string[] {
  return readSimulated(directory)
    .split('\n')
    .filter((line) => line.includes('"state":"running"'))
    .map((line) => JSON.parse(line) as { runId: string; startedAt: string })
    .map(({ runId, startedAt }) => `${runId} ${startedAt}`);
}

const of = (vcpus: number, memory_mib: number) => ({ resources: { vcpus, memory_mib } });

describe('workers with engines of their own', () => {
  test('share the sandboxes, and a sandbox starts again at its disk', async () => {
    const first = await start({ simulated: { capacity: { vcpus: 2 } } });
    const second = await start({ beside: first, simulated: { capacity: { vcpus: 2 } } });
    await until(
      async () => (await first.ctx.pool.query('select from workers')).rowCount,
      (count) => count === 2,
    );
    const client = await first.newOrg();
    const made = await Promise.all(
      ['a', 'b', 'c', 'd'].map((name) => client.post('/v1/sandboxes', smallRequest(name), running)),
    );
    expect(made.map(({ body }) => body.status)).toEqual(['running', 'running', 'running', 'running']);
    const places = await Promise.all(made.map(({ body }) => workerOf(first, body.id)));
    const engines = [first.runtime.engineId, second.runtime.engineId];
    for (const engine of engines) expect(places.filter((place) => place === engine)).toHaveLength(2);

    const [a] = made;
    await client.post(`/v1/sandboxes/${a!.body.id}/stop`, {});
    await untilStatus(client, a!.body.id, 'stopped');
    const again = await client.post(`/v1/sandboxes/${a!.body.id}/start`, {}, { wait_for: 'running' });
    expect(again.body.status).toBe('running');
    expect(await workerOf(first, a!.body.id)).toBe(places[0]);
  });

  test('take only sandboxes whose settings they can enforce', async () => {
    const plain = await start();
    // Another release or machine may lack this capability.
    (plain.runtime.capabilities as Set<string>).delete('scripts');
    const able = await start({ beside: plain });
    await until(
      async () => (await plain.ctx.pool.query('select from workers')).rowCount,
      (count) => count === 2,
    );
    const client: Client = await able.newOrg();
    for (let index = 0; index < 4; index += 1) {
      const spec = { runtime: { scripts: { hello: 'echo hello' } } };
      const { body } = await client.post('/v1/sandboxes', smallRequest(`s-${index}`, spec), running);
      expect([body.status, await workerOf(able, body.id)]).toEqual(['running', able.runtime.engineId]);
    }
  });
});

describe('capacity', () => {
  test('queues starts without room in order of arrival, and reports them, until there is room', async () => {
    const service = await start({ simulated: { capacity: { vcpus: 4, memoryMib: 4_096 } } });
    const client = await service.newOrg();
    const create = async (name: string, spec: Record<string, unknown>) =>
      (await client.post('/v1/sandboxes', smallRequest(name, spec), { start: true })).body.id as string;
    const small = [await create('s1', of(2, 512)), await create('s2', of(2, 512))];
    for (const id of small) await untilStatus(client, id, 'running');

    const large = await create('large', of(4, 512));
    const late = await create('late', of(1, 512));
    for (const id of [large, late]) {
      await until(
        () => client.get(`/v1/sandboxes/${id}`),
        ({ body }) => body.status_reason === 'insufficient_capacity',
      );
    }
    // There is room for the last start, but earlier ones are still queued.
    await client.post(`/v1/sandboxes/${small[0]}/stop`, {});
    await untilStatus(client, small[0]!, 'stopped');
    await sleep(1_200);
    expect((await client.get(`/v1/sandboxes/${late}`)).body.status).toBe('starting');

    await client.delete(`/v1/sandboxes/${small[1]}`);
    expect((await untilStatus(client, large, 'running')).body.status_reason).toBeNull();
    expect((await client.get(`/v1/sandboxes/${late}`)).body.status_reason).toBe('insufficient_capacity');
    await client.post(`/v1/sandboxes/${large}/stop`, {});
    await untilStatus(client, late, 'running');
  });

  test('is not blocked by a thousand starts for a worker that is away', async () => {
    const service = await start();
    const { pool } = service.ctx;
    const client = await service.newOrg();
    const { body: model } = await client.post('/v1/sandboxes', smallRequest('model'));
    const away = await insertWorker(pool);
    // Their run ids make them the oldest.
    await pool.query(
      `insert into sandboxes (org_id, id, name, slug, status, status_reason, ephemeral, created_at, changed_at, spec,
         run_spec, runtime, run_id, worker_id)
       select org_id, gen_random_uuid(), 'stuck-' || n, 'stuck-' || n, 'starting', 'scheduling', false, created_at,
         changed_at, spec, run_spec, runtime, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, $2
       from sandboxes, generate_series(1, 1200) n where id = $1`,
      [model.id, away],
    );
    await pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib)
       select org_id, run_id, id, 1, 64, 0 from sandboxes where worker_id = $1`,
      [away],
    );
    await pool.query('analyze sandboxes, runs');
    const { body } = await client.post('/v1/sandboxes', smallRequest('other'), running);
    expect(body.status).toBe('running');
    const { rows } = await pool.query(
      'select distinct status, status_reason from sandboxes where worker_id = $1',
      [away],
    );
    expect(rows).toEqual([{ status: 'starting', status_reason: 'scheduling' }]);
  });

  test('used up is reported on every queued start that a placement considers', async () => {
    const service = await start({ simulated: { capacity: { vcpus: 1 } } });
    const client = await service.newOrg();
    await client.post('/v1/sandboxes', smallRequest('first'), running);
    const { body: last } = await client.post('/v1/sandboxes', smallRequest('last'), { start: true });
    await service.ctx.pool.query(
      `with more as (
         insert into sandboxes (org_id, id, name, slug, status, status_reason, ephemeral, created_at, changed_at, spec,
           run_spec, runtime, run_id)
         select org_id, gen_random_uuid(), 'more-' || n, 'more-' || n, 'starting', 'scheduling', false, created_at,
           changed_at, spec, run_spec, runtime, ('f0000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid
         from sandboxes, generate_series(1, 1200) n where id = $1
         returning org_id, id, run_id)
       insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib) select org_id, run_id, id, 1, 64, 0 from more`,
      [last.id],
    );
    await service.ctx.pool.query('analyze sandboxes, runs');
    const reasons = async () =>
      (
        await service.ctx.pool.query(
          `select status_reason, count(*) from sandboxes where status = 'starting' group by 1`,
        )
      ).rows;
    const areAllTold = (rows: { status_reason: string }[]) =>
      rows.every(({ status_reason: reason }) => reason === 'insufficient_capacity');
    expect(await until(reasons, areAllTold)).toEqual([
      { status_reason: 'insufficient_capacity', count: 1_201 },
    ]);
  });

  test('releases the queue entry of a start that was stopped or deleted, and a wait ends at its time-out', async () => {
    const service = await start({ simulated: { capacity: { vcpus: 1 } } });
    const client = await service.newOrg();
    const { body: first } = await client.post('/v1/sandboxes', smallRequest('first'), running);
    const held = await client.post('/v1/sandboxes', smallRequest('held'), { ...running, wait_timeout: 1 });
    expect([held.status, held.body.status]).toEqual([200, 'starting']);
    // A busy machine may take longer than the wait to consider a start.
    await until(
      () => client.get(`/v1/sandboxes/${held.body.id}`),
      ({ body }) => body.status_reason === 'insufficient_capacity',
    );
    const { body: gone } = await client.post('/v1/sandboxes', smallRequest('gone'), { start: true });
    await client.delete(`/v1/sandboxes/${gone.id}`);
    await client.post(`/v1/sandboxes/${held.body.id}/stop`, {});
    expect((await untilStatus(client, held.body.id, 'stopped')).body.started_at).toBeNull();
    await client.delete(`/v1/sandboxes/${first.id}`);
    const { body: next } = await client.post('/v1/sandboxes', smallRequest('next'), running);
    expect(next.status).toBe('running');
    const { rows } = await service.ctx.pool.query(
      `select s.destroyed_at is not null as destroyed, r.end_reason from sandboxes s join runs r on r.id = s.run_id
       where s.id = $1`,
      [gone.id],
    );
    expect(rows).toEqual([{ destroyed: true, end_reason: 'cancelled' }]);
  });
});

describe('two processes on one engine', () => {
  test('act one at a time; when one stops the other takes over at once, and no run starts twice', async () => {
    const first = await start({ simulated: { startMs: 300, keepJournal: true } });
    const client = await first.newOrg();
    const { body: runs } = await client.post('/v1/sandboxes', smallRequest('runs'), running);
    const second = await start({
      beside: first,
      sameEngine: true,
      simulated: { startMs: 300, keepJournal: true },
    });
    await until(
      async () => second.logs.some((line) => line.includes('standing by')),
      (stands) => stands,
    );
    const { body: starting } = await client.post('/v1/sandboxes', smallRequest('starting'), { start: true });
    const mine = { ...client, ...(await second.newOrg()), org: client.org };
    const viaSecond = (path: string) => mine.request('GET', path, { key: client.key });
    await untilStatus(client, starting.id, 'running');
    await first.stopWorker();
    const { body: after } = await client.post('/v1/sandboxes', smallRequest('after'), running);
    expect(after.status).toBe('running');
    expect((await viaSecond(`/v1/sandboxes/${runs.id}`)).body).toMatchObject({
      status: 'running',
      started_at: runs.started_at,
    });
    const starts = startsIn(second);
    expect(new Set(starts.map((line) => line.split(' ')[0])).size).toBe(new Set(starts).size);
    expect(new Set(starts).size).toBe(3);
  });

  test('never overlap: one that is cut off stops first, and its late writes are refused', async () => {
    const first = await start();
    const client = await first.newOrg();
    await client.post('/v1/sandboxes', smallRequest('runs'), running);
    const second = await start({ beside: first, sameEngine: true, worker: false });
    const cutOff = new WorkerLease(first.ctx);
    await first.stopWorker();
    expect(await cutOff.renew()).toBe(true);
    const term = cutOff.term!;
    const successor = new WorkerLease(second.ctx);
    const begun = performance.now();
    expect(await successor.renew()).toBe(false);
    // The holder receives no answers from the database.
    let lastValid = 0;
    for (let at = begun; term.valid; at = performance.now()) {
      lastValid = at - begun;
      await sleep(10);
    }
    expect(term.signal.aborted).toBe(true);
    while (!(await successor.renew())) await sleep(10);
    const takenAfter = performance.now() - begun;
    expect(takenAfter).toBeGreaterThan(lastValid + 100);
    expect(takenAfter).toBeGreaterThan(LEASE_MS * 0.9);

    const late = inTransaction(first.ctx.pool, (tx) => term.assertHeld(tx));
    await expect(late).rejects.toThrow(LeaseLostError);
    // A reacquired lease begins another term, and the old term stays invalid.
    await successor.release();
    expect(await cutOff.renew()).toBe(true);
    expect([cutOff.term === term, cutOff.term!.valid, term.valid]).toEqual([false, true, false]);
    await cutOff.release();
  });

  test('hand over only after a write in progress has committed', async () => {
    const service = await start({ worker: false });
    const holder = new WorkerLease(service.ctx);
    await holder.renew();
    const successor = new WorkerLease(service.ctx);
    let taken = false;
    await inTransaction(service.ctx.pool, async (tx) => {
      await holder.term!.assertHeld(tx);
      await service.ctx.pool.query(`select pg_sleep(0)`);
      await sleep(LEASE_MS + 200);
      const taking = successor.renew().then((held) => (taken = held));
      await sleep(300);
      expect(taken).toBe(false);
      void taking;
    });
    await until(
      async () => taken,
      (done) => done,
    );
    await successor.release();
  });
});

describe('the holder of a lease', () => {
  test('counts as ended once its process has ended, and only then', async () => {
    expect(hasEnded(makeHolderName())).toBe(false);
    expect(makeHolderName()).not.toBe(makeHolderName());
    for (const nobody of [
      '',
      'another',
      '0/0/0',
      `${makeHolderName().split('/').slice(0, 3).join('/')}x/1/1`,
    ]) {
      expect(hasEnded(nobody)).toBe(false);
    }
    const child = spawn('sleep', ['60']);
    const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8');
    const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    const holder = [...makeHolderName().split('/').slice(0, -2), child.pid, started].join('/');
    expect(hasEnded(holder)).toBe(false);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(hasEnded(holder)).toBe(true);
  });

  test('that is gone is replaced after one lease, although the clock of the database was set back', async () => {
    const service = await start({ worker: false });
    const { pool, runtime } = service.ctx;
    await new WorkerLease(service.ctx).renew();
    await pool.query(
      `update workers set holder = 'elsewhere', expires_at = clock_timestamp() + interval '1 day' where id = $1`,
      [runtime.engineId],
    );
    const successor = new WorkerLease(service.ctx);
    const begun = performance.now();
    await until(
      () => successor.renew(),
      (held) => held,
    );
    expect(performance.now() - begun).toBeGreaterThan(LEASE_MS * 0.9);
  });

  test('that ended without releasing the lease is replaced at once', async () => {
    const service = await start({ worker: false, settings: { workerLeaseMs: 60_000 } });
    const { pool, runtime } = service.ctx;
    const lease = new WorkerLease(service.ctx);
    await lease.renew();
    const ended = [...makeHolderName().split('/').slice(0, -1), '1'].join('/');
    await pool.query('update workers set holder = $2, epoch = epoch + 1 where id = $1', [
      runtime.engineId,
      ended,
    ]);
    expect(await new WorkerLease(service.ctx).renew()).toBe(true);
  });
});

describe('the end of a run', () => {
  test('that nobody recorded is its last observation, also after the clock was set back', async () => {
    const real = Date.now.bind(Date);
    const ahead = vi.spyOn(Date, 'now').mockImplementation(() => real() + 86_400_000);
    onTestFinished(() => ahead.mockRestore());
    const service = await start();
    const client = await service.newOrg();
    const early = (await client.post('/v1/sandboxes', smallRequest('early'), running)).body;
    ahead.mockRestore();
    const { body } = await client.post('/v1/sandboxes', smallRequest('leap'), running);
    expect([body.status, body.started_at < early.started_at]).toEqual(['running', true]);
    const { rows } = await until(
      () =>
        service.ctx.pool.query('select seen_at from runs where sandbox_id = $1 and seen_at > started_at', [
          body.id,
        ]),
      ({ rowCount }) => rowCount === 1,
    );
    await service.runtime.destroy(body.id);
    await service.runtime.destroy(early.id);
    const ended = (await untilStatus(client, body.id, 'failed')).body;
    expect(parseInstant(ended.stopped_at)).toBe(rows[0]!['seen_at']);
    // A run that began in the future has no length.
    const none = (await untilStatus(client, early.id, 'failed')).body;
    expect(none.stopped_at).toBe(none.started_at);
  });

  test('follows the idle timeout after the last activity, and the audit trail has the reason', async () => {
    const service = await start();
    const client = await service.newOrg();
    const spec = { lifecycle: { idle_timeout_secs: 2 } };
    const { body: idle } = await client.post('/v1/sandboxes', smallRequest('idle', spec), running);
    const simulated = service.runtime as SimulatedRuntime;
    // Each reading reports activity of the other sandbox, also its first one, however far apart the readings are.
    const activity = simulated.activity.bind(simulated);
    let lastWork = 0;
    const looking = vi.spyOn(simulated, 'activity').mockImplementation((ids) => {
      lastWork = Date.now();
      for (const id of ids) if (id !== idle.id) simulated.work(id, 60_000_000);
      return activity(ids);
    });
    const { body: busy } = await client.post('/v1/sandboxes', smallRequest('busy', spec), running);
    try {
      await untilStatus(client, idle.id, 'stopped');
      await sleep(1_500);
      expect((await client.get(`/v1/sandboxes/${busy.id}`)).body.status).toBe('running');
    } finally {
      looking.mockRestore();
    }
    const { body: ended } = await untilStatus(client, busy.id, 'stopped');
    expect(Date.parse(ended.stopped_at)).toBeGreaterThan(lastWork + 1_900);
    const events = await client.get('/v1/events', { resource_id: idle.id });
    expect(
      events.body.data.slice(0, 2).map(({ event_type, payload }: any) => [event_type, payload.reason]),
    ).toEqual([
      ['sandbox_stopped', 'idle_timeout'],
      ['sandbox_stop_requested', 'idle_timeout'],
    ]);
  });
});

describe('a worker on a lost machine', () => {
  test('is removed by command: its runs failed at its last heartbeat, and restart elsewhere', async () => {
    // It must not lose its lease before it stops, however late a heartbeat is.
    const first = await start({ settings: { workerLeaseMs: 60_000 } });
    const client = await first.newOrg();
    const names = ['runs', 'rests', 'goes', 'stops'];
    const [runs, rests, goes, stops] = await Promise.all(
      names.map(async (name) => (await client.post('/v1/sandboxes', smallRequest(name), running)).body.id),
    );
    await client.post(`/v1/sandboxes/${rests}/stop`, {});
    await untilStatus(client, rests, 'stopped');
    await expect(removeWorker(first.ctx.pool, first.runtime.engineId, loseSnapshots)).rejects.toThrow(
      'stop it first',
    );

    await first.stopWorker();
    await client.delete(`/v1/sandboxes/${goes}`);
    await client.post(`/v1/sandboxes/${stops}/stop`, {});
    expect(await removeWorker(first.ctx.pool, first.runtime.engineId, loseSnapshots)).toBe(4);
    expect(await removeWorker(first.ctx.pool, first.runtime.engineId, loseSnapshots)).toBeUndefined();
    const statusOf = async (id: string) => (await client.get(`/v1/sandboxes/${id}`)).body;
    expect(await statusOf(runs)).toMatchObject({
      status: 'failed',
      last_failure_message: expect.stringContaining('was removed'),
    });
    expect([(await statusOf(rests)).status, (await statusOf(stops)).status]).toEqual(['stopped', 'stopped']);
    const { rows } = await first.ctx.pool.query(
      `select r.stopped_at = r.seen_at as seen, r.end_reason, s.destroyed_at is not null as destroyed
       from sandboxes s join runs r on r.id = s.run_id where s.id = any ($1) order by s.name desc`,
      [[runs, goes]],
    );
    expect(rows).toEqual([
      { seen: true, end_reason: 'worker_removed', destroyed: false },
      { seen: true, end_reason: 'worker_removed', destroyed: true },
    ]);

    const second = await start({ beside: first });
    const again = await client.post(`/v1/sandboxes/${runs}/start`, {}, { wait_for: 'running' });
    expect([again.body.status, await workerOf(second, runs)]).toEqual(['running', second.runtime.engineId]);
  });
});
