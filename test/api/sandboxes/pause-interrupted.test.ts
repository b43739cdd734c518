import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { now } from '../../../src/lib/instant.js';
import { recordMemoryLost } from '../../../src/sandboxes/reconcile/record-pause.js';
import { recordObservations } from '../../../src/sandboxes/reconcile/record.js';
import { removeWorker } from '../../../src/sandboxes/reconcile/remove-worker.js';
import { loseSnapshots } from '../../../src/snapshots/purge.js';
import type { Answer } from '../../support/answer.js';
import { makeBudget } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

/** Pauses and resumes that something else ends or overtakes. */

let service: TestService;
let client: Client;
const failing = new Set<string>();
const refused = new Set<string>();
/** Pauses wait for their release, so that no test depends on the speed of the machine. */
let gate: Promise<void> | undefined;

beforeAll(async () => {
  service = await startTestService({
    simulated: {
      beforePause: async () => gate,
      failPause: (id) => (failing.has(id) ? 'the disk has no room for the memory' : undefined),
      failStart: ({ sandboxId }) => (refused.has(sandboxId) ? 'another version' : undefined),
    },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

function holdPauses(): () => void {
  let release: () => void = () => undefined;
  gate = new Promise((resolve) => (release = resolve));
  return () => {
    gate = undefined;
    release();
  };
}

const COMMAND = { runtime: { cmd: ['serve'] } };
const waits = (status: string) => ({ wait_for: status, wait_timeout: 60 });

async function make(name: string, more: object = COMMAND, own = client): Promise<string> {
  const query = { start: true, ...waits('running') };
  const { body, text } = await own.post('/v1/sandboxes', smallRequest(name, { ...more }), query);
  expect(body.status, text).toBe('running');
  return body.id;
}

const call = async (id: string, operation: string, query = {}, own = client): Promise<Answer> =>
  own.post(`/v1/sandboxes/${id}/${operation}`, {}, query);

async function paused(name: string, own = client): Promise<{ id: string; paused_at: string }> {
  const id = await make(name, COMMAND, own);
  const { body } = await call(id, 'pause', waits('paused'), own);
  expect([body.stop_reason, body.command.status]).toEqual(['paused', 'running']);
  return body;
}

async function typesOf(id: string, own = client): Promise<string[]> {
  const { body } = await own.get('/v1/events', { resource_id: id, limit: 100 });
  return body.data.toReversed().map(({ event_type }: { event_type: string }) => event_type);
}

async function runsOf(id: string) {
  const { rows } = await service.ctx.pool.query<{ id: string; resumes: boolean; end_reason: string | null }>(
    'select id, resumes, end_reason from runs where sandbox_id = $1 order by id',
    [id],
  );
  return rows;
}

const endsOf = async (id: string) =>
  (await runsOf(id)).map(({ resumes, end_reason }) => [resumes, end_reason]);

async function pausesOf(id: string): Promise<number> {
  const { rowCount } = await service.ctx.pool.query('select from pauses where sandbox_id = $1', [id]);
  return rowCount!;
}

const untilQueued = async (id: string, own = client) =>
  until(
    () => typesOf(id, own),
    (types) => types.includes('sandbox_start_queued'),
  );

/** The second run of the sandbox runs. */
async function untilFollowed(id: string): Promise<void> {
  await until(
    () => runsOf(id),
    (runs) => runs.length === 2,
  );
  await untilStatus(client, id, 'running');
}

describe('a run that ends during its pause', () => {
  test.each(['start', 'resume'])('is followed by a %s that was accepted', async (operation) => {
    const id = await make(`crash-${operation}`);
    const release = holdPauses();
    await call(id, 'pause');
    const accepted = call(id, operation, waits('running'));
    await untilQueued(id);
    (service.runtime as SimulatedRuntime).exit(id, 1);
    release();
    expect((await accepted).body.status).toBe('running');
    expect(await endsOf(id)).toEqual([
      [false, 'crashed'],
      [false, null],
    ]);
    expect(await pausesOf(id)).toBe(0);
  });

  test('is a failure without one, and its command has an end of its own', async () => {
    const id = await make('crash-alone', { ...COMMAND, lifecycle: { ends_with_command: true } });
    const release = holdPauses();
    await call(id, 'pause');
    (service.runtime as SimulatedRuntime).exit(id, 7);
    release();
    const { body } = await untilStatus(client, id, 'failed');
    expect([body.stop_reason, body.command.status, body.command.exit_code]).toEqual(['command', 'exited', 7]);
  });
});

describe('a restart during a pause', () => {
  test('begins a run from the disk when the engine cannot make the pause', async () => {
    const id = await make('restart-fails');
    failing.add(id);
    const release = holdPauses();
    await call(id, 'pause');
    expect((await call(id, 'restart')).body.status).toBe('stopping');
    release();
    await untilFollowed(id);
    expect(await endsOf(id)).toEqual([
      [false, 'restart'],
      [false, null],
    ]);
    expect((await typesOf(id)).slice(3)).toEqual([
      'sandbox_pause_requested',
      'sandbox_stop_requested',
      'sandbox_stopped',
      'sandbox_start_requested',
      'sandbox_started',
    ]);
  });

  test('begins a run from the disk when a resume waits for the end of the pause', async () => {
    const id = await make('restart-resume');
    const release = holdPauses();
    await call(id, 'pause');
    const resumed = call(id, 'resume', waits('running'));
    await untilQueued(id);
    await call(id, 'restart');
    // A second restart joins the first.
    await call(id, 'restart');
    release();
    expect((await resumed).body.status).toBe('running');
    expect(await endsOf(id)).toEqual([
      [false, 'restart'],
      [false, null],
    ]);
    expect(await pausesOf(id)).toBe(0);
  });
});

describe('a pause that the engine has made', () => {
  test.each([
    ['stop', 'requested', 'stopped'],
    ['restart', 'restart', 'running'],
  ])('is not kept after a %s that came before its record', async (operation, reason, after) => {
    const id = await make(`made-${operation}`);
    const release = holdPauses();
    await call(id, 'pause');
    const [run] = await runsOf(id);
    await call(id, operation);
    // As a pass that has read the row before.
    const observation = {
      orgId: client.org.id,
      sandboxId: id,
      runId: run!.id,
      occurrence: 'run_paused' as const,
      startedAt: null,
      stoppedAt: now(),
      reason: 'paused',
      message: null,
      exit: { code: 0, outOfMemory: false },
      savedMib: 512,
    };
    await inTransaction(service.ctx.pool, (tx) => recordObservations(service.ctx, tx, [observation]));
    release();
    const { body } = await untilStatus(client, id, after);
    expect(body.paused_at).toBeNull();
    expect([(await endsOf(id))[0], await pausesOf(id)]).toEqual([[false, reason], 0]);
    if (after === 'running') expect((await runsOf(id)).at(-1)?.resumes).toBe(false);
    else expect([body.stop_reason, body.command.status]).toEqual(['requested', 'stopped']);
  });
});

describe('the command of a pause', () => {
  const stopped = (ended_at: string) => ({
    status: 'stopped',
    exit_code: null,
    signal: null,
    oom_killed: null,
    ended_at,
  });

  test('ends with a stop', async () => {
    const { id, paused_at } = await paused('command-stop');
    expect((await call(id, 'stop')).body.command).toEqual(stopped(paused_at));
    expect((await client.get(`/v1/sandboxes/${id}`)).body.command).toEqual(stopped(paused_at));
  });

  test('ends with the loss of the memory', async () => {
    const { id, paused_at } = await paused('command-lost');
    await (service.runtime as SimulatedRuntime).pauses.discard(id);
    expect((await untilStatus(client, id, 'failed')).body.command).toEqual(stopped(paused_at));
  });

  test('ends with a resume that the engine refuses', async () => {
    const { id, paused_at } = await paused('command-refused');
    refused.add(id);
    const { body } = await call(id, 'resume', waits('running'));
    expect([body.status, body.stop_reason, body.paused_at]).toEqual(['failed', 'start_failed', null]);
    expect(body.command).toEqual(stopped(paused_at));
  });

  test('ends with a stop of a resume that waits for room', async () => {
    const small = await startForTest({ simulated: { capacity: { vcpus: 1 } } });
    const own = await small.newOrg();
    const { id, paused_at } = await paused('first', own);
    await make('second', COMMAND, own);
    expect((await call(id, 'resume', {}, own)).body).toMatchObject({
      status: 'starting',
      command: { status: 'running' },
    });
    await call(id, 'stop', {}, own);
    const { body } = await untilStatus(own, id, 'stopped');
    expect([body.stop_reason, body.paused_at]).toEqual(['requested', null]);
    expect(body.command).toEqual(stopped(paused_at));
  });
});

test('a sandbox that is being paused counts as running, until its memory is saved', async () => {
  const own = await service.newOrg();
  const { pool } = service.ctx;
  await pool.query('update quotas set max_concurrent_persistent_running = 1 where org_id = $1', [own.org.id]);
  const id = await make('kept', COMMAND, own);
  const start = () => own.post('/v1/sandboxes', smallRequest('other'), { start: true });
  const release = holdPauses();
  failing.add(id);
  await call(id, 'pause', {}, own);
  expect((await start()).body.error.code).toBe('quota_exceeded');
  release();
  // The engine refuses, and the sandbox runs on within the quota.
  await untilStatus(own, id, 'running');
  expect((await start()).body.error.code).toBe('quota_exceeded');
  failing.delete(id);

  // A resume that follows the pause needs no second place.
  const releaseNext = holdPauses();
  await call(id, 'pause', {}, own);
  const resumed = call(id, 'resume', waits('running'), own);
  await untilQueued(id, own);
  releaseNext();
  expect((await resumed).body.status).toBe('running');
  expect((await start()).body.error.code).toBe('quota_exceeded');
  await call(id, 'pause', waits('paused'), own);
  expect((await start()).status).toBe(200);
});

test('a sandbox that is being paused takes no labels of a used up budget, because it may run on', async () => {
  const own = await service.newOrg();
  const scope = { type: 'label', key: 'team', value: 'ml' };
  await makeBudget(own, { scope, measure: 'vcpu_hours', limit: '0.0001', action: 'refuse_starts' });
  const labels = { team: 'ml' };
  await make('user', { ...COMMAND, labels }, own);
  const id = await make('relabelled', COMMAND, own);
  const release = holdPauses();
  await call(id, 'pause', {}, own);
  let tries = 0;
  await until(
    async () => own.post('/v1/sandboxes', smallRequest(`other-${(tries += 1)}`, { labels }), { start: true }),
    ({ body }) => body.error?.code === 'budget_exceeded',
  );
  const { status, body } = await own.patch(`/v1/sandboxes/${id}`, { labels });
  expect([status, body.error?.code]).toEqual([403, 'budget_exceeded']);
  release();
  await untilStatus(own, id, 'stopped');
});

test('a removed worker loses the memory of its pauses, with an event of each', async () => {
  const lost = await startForTest({
    simulated: { capacity: { vcpus: 1 } },
    settings: { workerLeaseMs: 1_500 },
  });
  const own = await lost.newOrg();
  const { id, paused_at } = await paused('paused', own);
  const { id: waiting } = await paused('waiting', own);
  await make('running', COMMAND, own);
  expect((await call(waiting, 'resume', {}, own)).body.status).toBe('starting');
  await lost.stopWorker();
  await removeWorker(lost.ctx.pool, lost.runtime.engineId, loseSnapshots);
  expect((await own.get(`/v1/sandboxes/${id}`)).body).toMatchObject({
    status: 'failed',
    stop_reason: 'lost',
    stop_message: 'its worker was removed, and with it the disk and the memory of its pause',
    paused_at: null,
    command: { status: 'stopped', ended_at: paused_at },
  });
  const { body } = await own.get('/v1/events', { event_type: 'sandbox_memory_discarded' });
  expect(body.data.map(({ payload }: { payload: object }) => payload)).toEqual([
    expect.objectContaining({ sandbox_id: id, status: 'failed', reason: 'lost', paused_at }),
  ]);
  // Its resume had no place yet, and no other worker can carry it out.
  expect((await own.get(`/v1/sandboxes/${waiting}`)).body).toMatchObject({
    status: 'failed',
    paused_at: null,
    last_failure_message: expect.stringContaining('was removed'),
  });
  const { rows } = await lost.ctx.pool.query('select to_at is null as open from pauses');
  expect(rows).toEqual([{ open: false }, { open: false }]);
});

test('the loss of memory is recorded by organization and id, as every lock of sandboxes', async () => {
  const { pool } = service.ctx;
  const ids = [(await paused('lock-a')).id, (await paused('lock-b')).id].toSorted();
  const [first, last] = ids as [string, string];
  const refs = [last, first].map((sandboxId) => ({ orgId: client.org.id, sandboxId }));
  let recorded: Promise<void> | undefined;
  await inTransaction(pool, async (tx) => {
    await tx.query('select from sandboxes where id = $1 for update', [first]);
    recorded = inTransaction(pool, (other) => recordMemoryLost(other, refs, now()));
    await until(
      async () =>
        (
          await pool.query(
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
               and query like '%sandboxes%'`,
          )
        ).rowCount,
      (waiting) => Number(waiting) >= 1,
    );
    // It waits for the first, and holds no other.
    await tx.query('select from sandboxes where id = $1 for update nowait', [last]);
  });
  await recorded;
  for (const id of ids) expect((await client.get(`/v1/sandboxes/${id}`)).body.status).toBe('failed');
});
