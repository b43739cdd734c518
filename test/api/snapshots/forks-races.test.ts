import { afterAll, beforeAll, expect, test } from 'vitest';
import { CaptureRefusedError, type Capture } from '../../../src/engine/runtime.js';
import type { Client } from '../../support/client.js';
import { startWithLostCaptures } from '../../support/lost-captures.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { forked } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' } as const;
const ROUNDS = 4;

let service: TestService;
/** Runs in each capture. */
let during: ((capture: Capture) => Promise<void>) | undefined;
beforeAll(async () => {
  const simulated = { onCapture: async (one: Capture) => during?.(one) };
  service = await startTestService({ simulated, settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

async function start(owner: Client, name: string, part: object = {}): Promise<string> {
  const { body, text } = await owner.post('/v1/sandboxes', smallRequest(name, { ...part }), running);
  expect(body.status, text).toBe('running');
  return body.id;
}

const fork = async (owner: Client, id: string, request: object) =>
  owner.post(`/v1/sandboxes/${id}/fork`, request);

/** Holds the captures of an organization until the returned function is called. */
function hold({ org }: Client): { begun: Promise<void>; release: () => void } {
  let release: () => void = () => undefined;
  let begin: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  during = async ({ orgId }) => {
    if (orgId !== org.id) return undefined;
    begin();
    return held;
  };
  return {
    begun,
    release() {
      during = undefined;
      release();
    },
  };
}

/** The engine has the disks that sandboxes need, and no others; no failed operation has copies or is charged. */
async function expectConsistent(on: TestService): Promise<void> {
  const { pool } = on.ctx;
  const needed = async () =>
    (
      await pool.query<{ id: string }>(
        `select distinct disk_snapshot_id as id from sandboxes
         where disk_snapshot_id is not null and destroyed_at is null order by 1`,
      )
    ).rows.map(({ id }) => id);
  const held = async () =>
    (await on.runtime.snapshots!.list()).map(({ snapshotId }) => snapshotId).toSorted(byText);
  await until(
    async () => [await needed(), await held()],
    ([ids, found]) => ids!.join() === found!.join(),
    60_000,
  );
  const wrong = await pool.query(
    `select p.id from snapshots p where p.status = 'failed' and (
       exists (select from sandboxes s where s.disk_snapshot_id = p.id and s.removed_at is null)
       or exists (select from accruals a where a.volume_id = p.id))`,
  );
  expect(wrong.rows).toEqual([]);
  const charged = await pool.query(
    `select a.volume_id from accruals a join snapshots p on p.org_id = a.org_id and p.id = a.volume_id
     where a.to_at > now() and p.erased_at is not null`,
  );
  expect(charged.rows).toEqual([]);
}

const byText = (a: string, b: string) => (a < b ? -1 : 1);

test('a capture that fails removes all copies, and their names are free again', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'fails');
  during = async ({ orgId }) => {
    if (orgId === client.org.id) throw new CaptureRefusedError('sandbox_changed', 'it was changed');
    return Promise.resolve();
  };
  const { body } = await fork(client, id, { count: 3, names: ['a', 'b', 'c'] });
  const operation = await forked(client, body.id);
  during = undefined;
  expect(operation).toMatchObject({
    status: 'failed',
    error: { code: 'sandbox_changed', message: 'it was changed' },
    sandboxes: [],
    size_bytes: null,
  });
  for (const copy of body.sandboxes) {
    expect((await client.get(`/v1/sandboxes/${copy.id}`)).status).toBe(404);
    const { body: events } = await client.get('/v1/events', { resource_id: copy.id });
    const removed = events.data.find(({ event_type }: any) => event_type === 'sandbox_removed');
    expect(removed.payload.reason).toBe('fork_failed');
  }
  const { body: log } = await client.get('/v1/events', { event_type: 'sandbox_fork_failed' });
  expect(log.data.map(({ payload }: any) => [payload.fork_id, payload.reason])).toEqual([
    [body.id, 'sandbox_changed'],
  ]);
  const again = await fork(client, id, { count: 3, names: ['a', 'b', 'c'] });
  expect((await forked(client, again.body.id))['status']).toBe('succeeded');
  await expectConsistent(service);
});

test('the deletion of all copies cancels the operation', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'cancelled');
  for (const moment of ['queued', 'captured'] as const) {
    const held = hold(client);
    const first = await fork(client, id, { count: 1 });
    const { body } = moment === 'queued' ? await fork(client, id, { count: 2 }) : first;
    await held.begun;
    for (const copy of body.sandboxes) {
      expect((await client.delete(`/v1/sandboxes/${copy.id}`)).status).toBe(200);
    }
    held.release();
    expect((await forked(client, body.id))['error'], moment).toMatchObject({ code: 'cancelled' });
  }
  await expectConsistent(service);
});

test('copies that are stopped, deleted, relabelled or forked before the capture ends do not disturb the others', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'busy');
  const held = hold(client);
  const { body } = await fork(client, id, { count: 4 });
  await held.begun;
  const [stopped, deleted, labelled, forking] = body.sandboxes;
  expect((await client.post(`/v1/sandboxes/${stopped.id}/stop`)).status).toBe(200);
  expect((await client.delete(`/v1/sandboxes/${deleted.id}`)).status).toBe(200);
  expect((await client.patch(`/v1/sandboxes/${labelled.id}`, { labels: { a: 'b' } })).status).toBe(200);
  expect((await fork(client, forking.id, { count: 1 })).body.error.code).toBe('invalid_state_transition');
  held.release();
  await forked(client, body.id);
  const statuses = await until(
    async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
    (sandboxes) => sandboxes.every(({ status }: any) => !status.endsWith('ing') || status === 'running'),
  );
  expect(statuses.map(({ name, status }: any) => [name, status])).toEqual([
    ['busy-1', expect.stringMatching(/^(stopped|created)$/)],
    ['busy-3', 'running'],
    ['busy-4', 'running'],
  ]);
  const { body: later, text } = await client.post(`/v1/sandboxes/${stopped.id}/start`, undefined, {
    wait_for: 'running',
  });
  expect(later.status, text).toBe('running');
  await expectConsistent(service);
});

test('a deletion or a stop of the source beside a fork leaves all copies, or none', async () => {
  const client = await service.newOrg();
  for (let round = 0; round < ROUNDS; round += 1) {
    const id = await start(client, `ends-${round}`);
    const change = async () =>
      round % 2 === 0 ? client.delete(`/v1/sandboxes/${id}`) : client.post(`/v1/sandboxes/${id}/stop`);
    const [made, changed] = await Promise.all([fork(client, id, { count: 3 }), change()]);
    expect(changed.status).toBe(200);
    if (made.status !== 200) {
      expect([404, 409], made.text).toContain(made.status);
      continue;
    }
    const { status, sandboxes, error } = await forked(client, made.body.id);
    if (status === 'failed') expect([error.code, sandboxes]).toEqual(['sandbox_changed', []]);
    else expect(sandboxes.length).toBe(3);
  }
  await expectConsistent(service);
});

test('concurrent forks of one sandbox get names of their own', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'popular');
  const answers = await Promise.all([1, 2, 3].map(() => fork(client, id, { count: 5, start: false })));
  const names = answers.flatMap(({ body, text }) => {
    expect(body.sandboxes?.length, text).toBe(5);
    return body.sandboxes.map(({ name }: { name: string }) => name);
  });
  expect(new Set(names).size).toBe(15);
  for (const { body } of answers) expect((await forked(client, body.id))['status']).toBe('succeeded');
  await expectConsistent(service);
});

test('a fork of one organization does not stop that of another', async () => {
  const [slow, quick] = [await service.newOrg(), await service.newOrg()];
  const [one, other] = [await start(slow, 'slow'), await start(quick, 'quick')];
  const held = hold(slow);
  const waiting: string[] = [];
  for (let round = 0; round < 3; round += 1) waiting.push((await fork(slow, one, { count: 10 })).body.id);
  await held.begun;
  const { body } = await fork(quick, other, { count: 2 });
  expect((await forked(quick, body.id))['status']).toBe('succeeded');
  await until(
    async () => (await quick.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
    (sandboxes) => sandboxes.every(({ status }: any) => status === 'running'),
  );
  expect((await slow.get(`/v1/fork-operations/${waiting[0]}`)).body.status).toBe('in_progress');
  held.release();
  for (const id of waiting) expect((await forked(slow, id))['status']).toBe('succeeded');
});

test.each(['before', 'after'] as const)(
  'a worker that ends %s the engine has captured the disk leaves the rest to its successor',
  async (moment) => {
    const { service: first, captured } = await startWithLostCaptures(moment);
    const owner = await first.newOrg();
    const id = await start(owner, 'survives');
    const { body } = await fork(owner, id, { count: 3 });
    await captured();
    await first.stopWorker();
    expect((await owner.get(`/v1/sandboxes/${body.sandboxes[0].id}`)).body.status).toBe('starting');
    const second = await startForTest({ beside: first, sameEngine: true, settings: { stopGraceMs: 0 } });
    expect(await forked(owner, body.id)).toMatchObject({ status: 'succeeded', error: null });
    await until(
      async () => (await owner.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
      (sandboxes) => sandboxes.length === 3 && sandboxes.every(({ status }: any) => status === 'running'),
    );
    const { rows } = await second.ctx.pool.query('select from accruals where volume_id = $1', [body.id]);
    expect(rows.length).toBe(1);
    await expectConsistent(second);
  },
);
