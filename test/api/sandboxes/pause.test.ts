import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { createKey } from '../../../src/keys/create.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { newId } from '../../../src/lib/uuid.js';
import { wakeSandbox, WakeRefusedError } from '../../../src/sandboxes/lifecycle/wake.js';
import { makeBudget } from '../../support/budgets.js';
import type { Client } from '../../support/client.js';
import { operations } from '../../support/openapi.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
/** The sandboxes whose memory the engine cannot save. */
const failing = new Set<string>();
/** Pauses wait for their release, so that no test depends on the speed of the machine. */
let gate: Promise<void> | undefined;

beforeAll(async () => {
  service = await startTestService({
    simulated: {
      beforePause: async () => gate,
      failPause: (id) => (failing.has(id) ? 'the disk has no room for the memory' : undefined),
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

const waits = (status: string) => ({ wait_for: status, wait_timeout: 60 });
const at = (id: string, operation = '') => `/v1/sandboxes/${id}${operation === '' ? '' : `/${operation}`}`;

async function make(name: string, more: Record<string, unknown> = {}): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, more), {
    start: true,
    ...waits('running'),
  });
  expect(body.status, text).toBe('running');
  return body.id;
}

async function paused(name: string, more: Record<string, unknown> = {}): Promise<string> {
  const id = await make(name, more);
  const { body, text } = await client.post(at(id, 'pause'), {}, waits('paused'));
  expect([body.status, body.stop_reason], text).toEqual(['stopped', 'paused']);
  return id;
}

/** Oldest first, without those of the create and its start. */
async function eventsOf(id: string): Promise<unknown[][]> {
  const { body } = await client.get('/v1/events', { resource_id: id, limit: 100 });
  return body.data
    .toReversed()
    .slice(3)
    .map(({ event_type, payload }: { event_type: string; payload: Record<string, unknown> }) => [
      event_type,
      payload['previous_status'],
      payload['status'],
      payload['reason'],
    ]);
}

async function pausesOf(id: string): Promise<Record<string, unknown>[]> {
  const { rows } = await service.ctx.pool.query(
    `select r.end_reason, p.memory_mib, p.from_at = r.stopped_at as begins_with_the_end, p.to_at
     from pauses p join runs r on r.org_id = p.org_id and r.id = p.run_id
     where p.sandbox_id = $1 order by p.from_at`,
    [id],
  );
  return rows;
}

describe('a pause', () => {
  test('ends the run with its memory on the disk, and a resume begins another with it', async () => {
    const id = await make('cycles', { runtime: { cmd: ['serve'] } });
    const before = await client.get(at(id));
    const answer = await client.post(at(id, 'pause'), {}, waits('paused'));
    expect(answer.status, answer.text).toBe(200);
    const { status, stop_reason, paused_at, stopped_at, command } = answer.body;
    expect([status, stop_reason, paused_at, command]).toEqual([
      'stopped',
      'paused',
      stopped_at,
      before.body.command,
    ]);
    expect(await pausesOf(id)).toEqual([
      { end_reason: 'paused', memory_mib: 512, begins_with_the_end: true, to_at: null },
    ]);
    const again = await client.post(at(id, 'pause'), {});
    expect(again.body).toEqual(answer.body);

    const resumed = await client.post(at(id, 'resume'), {}, waits('running'));
    expect([resumed.status, resumed.body.status, resumed.body.paused_at]).toEqual([200, 'running', null]);
    expect(resumed.body.command).toEqual(before.body.command);
    const [{ to_at }] = (await pausesOf(id)) as [{ to_at: string }];
    const { rows } = await service.ctx.pool.query<{ started_at: string; resumes: boolean }>(
      'select started_at, resumes from runs where sandbox_id = $1 order by id',
      [id],
    );
    expect(rows.map(({ resumes }) => resumes)).toEqual([false, true]);
    expect(to_at).toBe(rows[1]!.started_at);
    expect(await eventsOf(id)).toEqual([
      ['sandbox_pause_requested', 'running', 'stopping', 'requested'],
      ['sandbox_paused', 'stopping', 'stopped', 'paused'],
      ['sandbox_start_requested', 'stopped', 'starting', 'requested'],
      ['sandbox_started', 'starting', 'running', 'run_started'],
    ]);
  });

  test('is found by its reason, by name too, and a start resumes it', async () => {
    const id = await make('by-name');
    await client.post('/v1/sandboxes/by-name/by-name/pause', {}, waits('paused'));
    const { body: list } = await client.get('/v1/sandboxes', {
      stop_reason: 'paused',
      name_prefix: 'by-name',
    });
    expect(list.data.map((one: { id: string }) => one.id)).toEqual([id]);
    const started = await client.post(at(id, 'start'), {}, waits('running'));
    expect([started.body.status, started.body.paused_at]).toEqual(['running', null]);
    const resumed = await client.post('/v1/sandboxes/by-name/by-name/resume', {});
    expect([resumed.status, resumed.body]).toEqual([200, started.body]);
  });

  test('that the engine cannot make leaves the sandbox running, with the reason', async () => {
    const id = await make('fails');
    failing.add(id);
    const { body } = await client.post(at(id, 'pause'), {}, waits('paused'));
    expect([body.status, body.last_failure_message]).toEqual([
      'running',
      'it was not paused: the disk has no room for the memory',
    ]);
    expect(await eventsOf(id)).toEqual([
      ['sandbox_pause_requested', 'running', 'stopping', 'requested'],
      ['sandbox_pause_failed', 'stopping', 'running', 'engine'],
    ]);
    expect(await pausesOf(id)).toEqual([]);
    failing.delete(id);
    expect((await client.post(at(id, 'pause'), {}, waits('paused'))).body.status).toBe('stopped');
  });

  test('is refused for an ephemeral sandbox, and so is on_idle without what it needs', async () => {
    const id = await make('ephemeral', { lifecycle: { ephemeral: true } });
    const { status, body } = await client.post(at(id, 'pause'), {});
    expect([status, body.error.code]).toEqual([409, 'invalid_state_transition']);
    const refusals = [
      { on_idle: 'pause' },
      { on_idle: 'pause', idle_timeout_secs: 60, ephemeral: true },
      { on_idle: 'sleep', idle_timeout_secs: 60 },
    ].map(async (lifecycle) => client.post('/v1/sandboxes', smallRequest('refused', { lifecycle })));
    for (const { status: code, body: refused } of await Promise.all(refusals))
      expect([code, JSON.stringify(refused.error)]).toEqual([400, expect.stringContaining('on_idle')]);
    const shown = await client.post(
      '/v1/sandboxes',
      smallRequest('shows', { lifecycle: { on_idle: 'pause', idle_timeout_secs: 60 } }),
    );
    expect(shown.body.spec.lifecycle.on_idle).toBe('pause');
  });

  test('finds no sandbox of another organization, and none beyond the labels of the key', async () => {
    const id = await paused('foreign', { labels: { team: 'ml' } });
    const other = await service.newOrg();
    const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), {
      ...FULL_ACCESS,
      scopes: ['sandboxes:read', 'sandboxes:write'],
      labels: { team: 'web' },
    });
    for (const operation of ['pause', 'resume']) {
      expect((await other.post(at(id, operation), {})).status).toBe(404);
      expect((await client.request('POST', at(id, operation), { body: {}, key })).status).toBe(404);
    }
    expect((await client.get(at(id))).body.paused_at).not.toBeNull();
  });
});

describe('the operations on a paused sandbox', () => {
  test.each([
    ['start', 'starting', ['sandbox_start_requested']],
    ['resume', 'starting', ['sandbox_start_requested']],
    ['pause', 'stopped', []],
    ['stop', 'stopped', ['sandbox_memory_discarded']],
    ['restart', 'starting', ['sandbox_memory_discarded', 'sandbox_start_requested']],
  ])('%s', async (operation, status, events) => {
    const id = await paused(`paused-${operation}`);
    const before = await eventsOf(id);
    const { body, status: code } = await client.post(at(id, operation), {});
    expect([code, body.status]).toEqual([200, status]);
    expect(
      (await eventsOf(id))
        .slice(before.length)
        .map(([type]) => type)
        .slice(0, events.length),
    ).toEqual(events);
    if (status === 'starting') await untilStatus(client, id, 'running');
    const keeps = operation === 'pause';
    expect((await client.get(at(id))).body.paused_at === null).toBe(!keeps);
    // The engine gives up the memory that nobody wants.
    const saved = async () => (await service.runtime.list()).find((held) => held.sandboxId === id)?.savedMib;
    await until(saved, (mib) => (mib !== undefined) === keeps);
    const { rows } = await service.ctx.pool.query<{ resumes: boolean }>(
      'select resumes from runs where sandbox_id = $1 order by id desc limit 1',
      [id],
    );
    expect(rows[0]!.resumes).toBe(operation === 'start' || operation === 'resume');
    const open = (await pausesOf(id)).map(({ to_at }) => to_at === null);
    expect(open).toEqual([keeps]);
  });

  test('delete', async () => {
    const id = await paused('paused-delete');
    expect((await client.delete(at(id))).status).toBe(200);
    await until(
      () => service.runtime.list(),
      (held) => !held.some(({ sandboxId }) => sandboxId === id),
    );
    expect((await pausesOf(id)).map(({ to_at }) => to_at === null)).toEqual([false]);
  });
});

describe('the operations while a sandbox is being paused', () => {
  test.each([
    ['pause', 200, 'stopping', { status: 'stopped', paused: true }],
    ['stop', 200, 'stopping', { status: 'stopped', paused: false }],
    ['start', 409, undefined, { status: 'stopped', paused: true }],
    ['resume', 409, undefined, { status: 'stopped', paused: true }],
    ['restart', 200, 'stopping', { status: 'running', paused: false }],
  ])('%s', async (operation, code, status, after) => {
    const id = await make(`pausing-${operation}`);
    const release = holdPauses();
    try {
      await client.post(at(id, 'pause'), {});
      const answer = await client.post(at(id, operation), {});
      expect([answer.status, answer.body.status]).toEqual([code, status]);
    } finally {
      release();
    }
    const { body } = await untilStatus(client, id, after.status);
    expect(body.paused_at !== null).toBe(after.paused);
    if (operation === 'stop') expect(body.stop_reason).toBe('requested');
    await until(
      async () => (await service.runtime.list()).find(({ sandboxId }) => sandboxId === id)?.savedMib,
      (mib) => (mib !== undefined) === after.paused,
    );
  });

  test('a resume that waits follows the pause', async () => {
    const id = await make('pausing-resume-waits');
    const release = holdPauses();
    await client.post(at(id, 'pause'), {});
    const resumed = client.post(at(id, 'resume'), {}, waits('running'));
    await until(
      async () => (await eventsOf(id)).at(-1)?.[0],
      (type) => type === 'sandbox_start_queued',
    );
    release();
    expect((await resumed).body.status).toBe('running');
    expect((await pausesOf(id)).map(({ to_at }) => to_at === null)).toEqual([false]);
  });
});

describe('a resume', () => {
  test('without the memory fails with the reason, and the next start begins anew', async () => {
    const id = await paused('lost');
    await (service.runtime as SimulatedRuntime).pauses.discard(id);
    const { body } = await untilStatus(client, id, 'failed');
    expect([body.stop_reason, body.paused_at, body.last_failure_message]).toEqual([
      'lost',
      null,
      expect.stringContaining('no longer on the disk'),
    ]);
    expect((await eventsOf(id)).at(-1)).toEqual(['sandbox_memory_discarded', 'stopped', 'failed', 'lost']);
    expect((await client.post(at(id, 'resume'), {})).status).toBe(409);
    expect((await client.post(at(id, 'start'), {}, waits('running'))).body.status).toBe('running');
  });

  test('needs the quota again, and a refusal leaves the sandbox paused', async () => {
    const own = await service.newOrg();
    await service.ctx.pool.query(
      'update quotas set max_concurrent_persistent_running = 1 where org_id = $1',
      [own.org.id],
    );
    const start = { start: true, ...waits('running') };
    const { body: first } = await own.post('/v1/sandboxes', smallRequest('first'), start);
    expect((await own.post('/v1/sandboxes', smallRequest('second'), start)).status).toBe(403);
    await own.post(at(first.id, 'pause'), {}, waits('paused'));
    const { body: second } = await own.post('/v1/sandboxes', smallRequest('second'), start);
    expect(second.status).toBe('running');
    const refused = await own.post(at(first.id, 'resume'), {});
    expect([refused.status, refused.body.error.code]).toEqual([403, 'quota_exceeded']);
    const { body } = await own.get(at(first.id));
    expect([body.status, body.paused_at === null]).toEqual(['stopped', false]);
    await own.post(at(second.id, 'stop'), {}, waits('stopped'));
    expect((await own.post(at(first.id, 'resume'), {}, waits('running'))).body.status).toBe('running');
  });

  test('without room waits for it, and stays paused when its caller gives up', async () => {
    const small = await startForTest({ simulated: { capacity: { vcpus: 1 } } });
    const own = await small.newOrg();
    const start = { start: true, ...waits('running') };
    const { body: first } = await own.post('/v1/sandboxes', smallRequest('first'), start);
    await own.post(at(first.id, 'pause'), {}, waits('paused'));
    const { body: second } = await own.post('/v1/sandboxes', smallRequest('second'), start);
    expect(second.status).toBe('running');
    const headers = { 'user-agent': 'microsandbox-sdk/0.7.0' };
    const query = { wait_for: 'running', wait_timeout: 1 };
    await own.request('POST', at(first.id, 'resume'), { body: {}, query, headers });
    const { body } = await untilStatus(own, first.id, 'stopped');
    expect([body.stop_reason, body.paused_at === null, body.stop_message]).toEqual([
      'paused',
      false,
      expect.stringContaining('no worker had room'),
    ]);
    await own.post(at(second.id, 'stop'), {}, waits('stopped'));
    expect((await own.post(at(first.id, 'resume'), {}, waits('running'))).body.status).toBe('running');
  });
});

test('an engine that saves no memory refuses a pause, and on_idle by its field', async () => {
  const plain = await startForTest();
  const capabilities = new Set([...plain.runtime.capabilities].filter((one) => one !== 'pause'));
  Object.assign(plain.runtime, { capabilities, pauses: undefined });
  const own = await plain.newOrg();
  const { body } = await own.post('/v1/sandboxes', smallRequest('one'), { start: true, ...waits('running') });
  const refused = await own.post(at(body.id, 'pause'), {});
  expect([refused.status, refused.body.error]).toEqual([
    501,
    expect.objectContaining({ code: 'not_supported', details: { capability: 'pause' } }),
  ]);
  const lifecycle = { on_idle: 'pause', idle_timeout_secs: 60 };
  const create = await own.post('/v1/sandboxes', smallRequest('two', { lifecycle }));
  expect([create.status, create.body.error.code, create.body.error.message]).toEqual([
    400,
    'invalid_sandbox_config',
    expect.stringContaining('lifecycle.on_idle'),
  ]);
});

test('an engine that saves no memory beside volumes refuses the pause of their sandboxes alone', async () => {
  const plain = await startForTest();
  const capabilities = [...plain.runtime.capabilities].filter((one) => one !== 'pause_with_volumes');
  Object.assign(plain.runtime, { capabilities: new Set(capabilities) });
  const own = await plain.newOrg();
  await own.post('/v1/volumes', { name: 'data' });
  const mounts = [{ type: 'named', name: 'data', guest: '/data' }];
  const lifecycle = { on_idle: 'pause', idle_timeout_secs: 60 };
  const create = await own.post('/v1/sandboxes', smallRequest('both', { mounts, lifecycle }));
  expect([create.status, create.body.error.code, create.body.error.message]).toEqual([
    400,
    'invalid_sandbox_config',
    expect.stringContaining('lifecycle.on_idle'),
  ]);
  const start = { start: true, ...waits('running') };
  const { body } = await own.post('/v1/sandboxes', smallRequest('with', { mounts }), start);
  const refused = await own.post(at(body.id, 'pause'), {});
  expect([refused.status, refused.body.error.code, refused.body.error.message]).toEqual([
    409,
    'invalid_state_transition',
    expect.stringContaining('mounts volumes'),
  ]);
  const { body: other } = await own.post('/v1/sandboxes', smallRequest('without', { lifecycle }), start);
  expect((await own.post(at(other.id, 'pause'), {}, waits('paused'))).body.stop_reason).toBe('paused');
});

test('idleness pauses a sandbox with on_idle, and a session resumes it', async () => {
  const lifecycle = { on_idle: 'pause', idle_timeout_secs: 1 };
  const { body: made } = await client.post('/v1/sandboxes', smallRequest('idles', { lifecycle }), {
    start: true,
  });
  const { id } = made;
  const { body } = await untilStatus(client, id, 'stopped');
  expect([body.stop_reason, body.paused_at === null]).toEqual(['idle', false]);
  // Nothing runs in the simulated engine, so the session ends with its refusal.
  const answers = await Promise.all([1, 2, 3].map(() => client.post(at(id, 'exec'), { cmd: 'true' })));
  expect(answers.map(({ status }) => status)).toEqual([501, 501, 501]);
  const types = (await eventsOf(id)).map(([type, , , reason]) => `${String(type)} ${String(reason)}`);
  expect(types.slice(0, 3)).toEqual([
    'sandbox_pause_requested idle_timeout',
    'sandbox_paused idle_paused',
    'sandbox_start_requested session_request',
  ]);
  // A request to a preview resumes it too.
  const request = { orgId: client.org.id, sandboxId: id, previewId: newId(), isBackground: false };
  const wake = async () => wakeSandbox(service.ctx, { ...request, wantedUntil: addMillis(now(), 60_000) });
  await until(
    () => client.get(at(id)),
    ({ body: shown }) => shown.paused_at !== null && shown.status === 'stopped',
  );
  const resumes = async () =>
    (await eventsOf(id)).filter(([type]) => type === 'sandbox_started' || type === 'sandbox_resumed').length;
  const before = await resumes();
  expect(await wake()).toBe('starting');
  // It may be idle again before a poll sees that it runs.
  await until(resumes, (count) => count > before);
  // A pause that a caller requested stays. The sandbox may be idle again before.
  await until(
    async () => {
      await client.post(at(id, 'resume'), {}, waits('running'));
      return client.post(at(id, 'pause'), {}, waits('paused'));
    },
    ({ body: shown }) => shown.stop_reason === 'paused',
  );
  expect((await client.post(at(id, 'exec'), { cmd: 'true' })).status).toBe(409);
  await expect(wake()).rejects.toThrow(WakeRefusedError);
});

test('a session that would resume a sandbox is refused as a start is, and so its document says', async () => {
  const own = await service.newOrg();
  const lifecycle = { on_idle: 'pause', idle_timeout_secs: 1 };
  const request = smallRequest('idles', { lifecycle });
  const { body } = await own.post('/v1/sandboxes', request, { start: true });
  await until(
    () => own.get(at(body.id)),
    ({ body: shown }) => shown.paused_at !== null,
  );
  // It ran for a second, and the limit is 3.6 ms.
  await makeBudget(own, { limit: '0.000001', action: 'refuse_starts' });
  const { status, body: refused } = await own.post(at(body.id, 'exec'), { cmd: 'true' });
  expect([status, refused.error.code]).toEqual([403, 'budget_exceeded']);
  const { body: shown } = await own.get(at(body.id));
  expect([shown.status, shown.paused_at]).toEqual(['stopped', expect.any(String)]);

  const entering = operations.filter(({ path }) =>
    /^\/v1\/sandboxes\/.*\/(agent|exec|files.*|terminal.*|ports\/.*)$/.test(path),
  );
  expect(entering).toHaveLength(26);
  for (const { method, path, operation } of entering)
    expect(operation.responses['403']?.description, `${method} ${path}`).toMatch(
      /`quota_exceeded`.*`budget_exceeded`/,
    );
});

describe('a service that ends', () => {
  const start = { start: true, ...waits('running') };

  test.each([
    ['while a sandbox is being paused', 'pausing'],
    ['while it is paused', 'paused'],
    ['while it is resumed', 'resuming'],
  ])('%s: the next one goes on', async (_, when) => {
    let held: Promise<void> | undefined;
    const first = await startForTest({ simulated: { beforePause: async () => held, startMs: 50 } });
    const own = await first.newOrg();
    const { body } = await own.post('/v1/sandboxes', smallRequest('one'), start);
    const { id } = body;
    if (when === 'pausing') {
      let release: () => void = () => undefined;
      held = new Promise((resolve) => (release = resolve));
      await own.post(at(id, 'pause'), {});
      // The call of the first process ends without a record.
      const stopped = first.stopWorker();
      release();
      await stopped;
    } else {
      await own.post(at(id, 'pause'), {}, waits('paused'));
      if (when === 'paused') await first.stopWorker();
      else {
        await Promise.all([own.post(at(id, 'resume'), {}), first.stopWorker()]);
      }
    }
    const second = await startForTest({ beside: first, sameEngine: true });
    if (when !== 'resuming') {
      await untilStatus(own, id, 'stopped');
      const { body: shown } = await own.get(at(id));
      expect(shown.paused_at).not.toBeNull();
      await own.post(at(id, 'resume'), {}, waits('running'));
    }
    await untilStatus(own, id, 'running');
    const { rows } = await second.ctx.pool.query(
      `select r.resumes, r.end_reason, p.to_at is not null as over from runs r
       left join pauses p on p.org_id = r.org_id and p.run_id = r.id where r.sandbox_id = $1 order by r.id`,
      [id],
    );
    expect(rows).toEqual([
      { resumes: false, end_reason: 'paused', over: true },
      { resumes: true, end_reason: null, over: false },
    ]);
  });
});
