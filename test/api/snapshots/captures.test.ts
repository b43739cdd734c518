import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { CaptureRefusedError, type Capture } from '../../../src/engine/runtime.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, ended, RUNNING, startSmall, typesOf } from '../../support/snapshots.js';

let service: TestService;
/** Runs in each capture. */
let during: ((capture: Capture) => Promise<void>) | undefined;
beforeAll(async () => {
  const simulated = { onCapture: async (one: Capture) => during?.(one) };
  service = await startTestService({ simulated, settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());
// Also of a test that failed: the captures of the next one would wait for it.
afterEach(() => {
  during = undefined;
});

test('an operation ends as failed with the reason, and its name is free again', async () => {
  const client = await service.newOrg();
  const id = await startSmall(client, 'fails');
  during = async ({ orgId }) => {
    if (orgId === client.org.id) throw new CaptureRefusedError('sandbox_changed', 'it was changed');
    return Promise.resolve();
  };
  const operation = await capture(client, id, 'again');
  during = undefined;
  expect([operation['status'], operation['error'], operation['result']]).toEqual([
    'failed',
    { code: 'sandbox_changed', message: 'it was changed' },
    null,
  ]);
  expect((await client.get(`/v1/snapshots/${operation['id']}`)).body.error.code).toBe('snapshot_not_found');
  expect(await typesOf(client, operation['id'])).toEqual(['snapshot_requested', 'snapshot_failed']);
  expect((await capture(client, id, 'again'))['status']).toBe('succeeded');
});

test('an error of the engine is tried again', async () => {
  const client = await service.newOrg();
  const id = await startSmall(client, 'retried');
  let failures = 0;
  during = async ({ orgId }) => {
    if (orgId !== client.org.id) return;
    failures += 1;
    if (failures === 1) throw new Error('the engine does not answer');
  };
  const operation = await capture(client, id, 'retried');
  during = undefined;
  expect([operation['status'], failures]).toEqual(['succeeded', 2]);
});

test('a deletion cancels an operation, and nothing of it stays in the engine', async () => {
  const client = await service.newOrg();
  const id = await startSmall(client, 'cancelled');
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  const { body } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'cancelled' });
  await until(
    async () => (await client.get(`/v1/snapshot-operations/${body.id}`)).body.status,
    (status) => status === 'in_progress',
  );
  expect((await client.delete(`/v1/snapshots/${body.id}`)).status).toBe(200);
  release();
  during = undefined;
  expect((await ended(client, body.id))['error'].code).toBe('cancelled');
  await until(
    async () => (await service.runtime.snapshots!.list()).map(({ snapshotId }) => snapshotId),
    (ids) => !ids.includes(body.id),
    30_000,
  );
});

test('a capture of one organization does not stop those of others', async () => {
  const [slow, quick] = [await service.newOrg(), await service.newOrg()];
  const [one, other] = [await startSmall(slow, 'slow'), await startSmall(quick, 'quick')];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === slow.org.id ? held : undefined);
  const ids: string[] = [];
  for (const name of ['a', 'b', 'c']) {
    ids.push((await slow.post('/v1/snapshots', { kind: 'disk', sandbox_id: one, name })).body.id);
  }
  expect((await capture(quick, other, 'between'))['status']).toBe('succeeded');
  const statuses = await until(
    async () =>
      Promise.all(ids.map(async (id) => (await slow.get(`/v1/snapshot-operations/${id}`)).body.status)),
    ([first]) => first !== 'queued',
  );
  expect(statuses).toEqual(['in_progress', 'queued', 'queued']);
  release();
  during = undefined;
  for (const id of ids) expect((await ended(slow, id))['status']).toBe('succeeded');
});

test('organizations have their turns, and a sandbox that does not start blocks no other', async () => {
  const full = await startForTest({
    simulated: { capacity: { vcpus: 5 }, onCapture: async (one) => during?.(one) },
  });
  const orgs: Client[] = [await full.newOrg(), await full.newOrg(), await full.newOrg()];
  const begun: string[] = [];
  const releases: (() => void)[] = [];
  during = async ({ snapshotId }) => {
    begun.push(snapshotId);
    return new Promise<void>((resolve) => releases.push(resolve));
  };
  const hasBegun = async (count: number) =>
    until(
      async () => Promise.resolve(begun.length),
      (length) => length >= count,
    );
  const ids: string[] = [];
  const ask = async (client: Client, sandbox_id: string, name: string) => {
    const { body, text } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id, name });
    expect(body.status, text).toBe('queued');
    ids.push(body.id);
  };
  const sandboxes: string[] = [];
  for (const [index, client] of orgs.entries()) sandboxes.push(await startSmall(client, `turn-${index}`));
  const [a, b, c] = orgs as [Client, Client, Client];
  const { body: stopped } = await a.post(
    '/v1/sandboxes',
    smallRequest('stopped', { resources: { vcpus: 2, memory_mib: 64 } }),
    RUNNING,
  );
  await a.post(`/v1/sandboxes/${stopped.id}/stop`, undefined, { wait_for: 'stopped' });
  await startSmall(a, 'filler', { resources: { vcpus: 2, memory_mib: 64 } });
  // One after the other: of two that one pass picks, either may begin first, and so have the earlier turn.
  await ask(a, sandboxes[0]!, 'a1');
  await hasBegun(1);
  await ask(b, sandboxes[1]!, 'b1');
  await hasBegun(2);
  await ask(a, stopped.id, 'a-starts');
  await ask(a, sandboxes[0]!, 'a2');
  await ask(b, sandboxes[1]!, 'b2');
  await a.post(`/v1/sandboxes/${stopped.id}/start`);
  await ask(c, sandboxes[2]!, 'c1');
  const names = () => begun.map((id) => ['a1', 'b1', 'a-starts', 'a2', 'b2', 'c1'][ids.indexOf(id)]);
  for (const [count, ended, last] of [
    [3, 1, 'c1'],
    [4, 0, 'a2'],
  ] as const) {
    releases[begun.indexOf(ids[ended]!)]!();
    await hasBegun(count);
    expect(names().at(-1)).toBe(last);
  }
  during = undefined;
  for (const release of releases) release();
});

test('a replacement ends as failed when another snapshot has taken the name meanwhile', async () => {
  const client = await service.newOrg();
  const id = await startSmall(client, 'raced');
  const first = await capture(client, id, 'raced');
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  const request = { kind: 'disk', sandbox_id: id, name: 'raced' };
  const { body } = await client.post('/v1/snapshots', { ...request, force: true });
  await client.delete(`/v1/snapshots/${first['id']}`);
  const { body: other } = await client.post('/v1/snapshots', { ...request, name: 'other' });
  // As a key of another team would have made it, and no replacement may delete that one.
  await service.ctx.pool.query(
    `update snapshots set name = 'raced', status = 'ready', size_bytes = 1, digest = 'd', content_digest = 'd',
       completed_at = now() where id = $1`,
    [other.id],
  );
  release();
  during = undefined;
  expect((await ended(client, body.id))['error'].code).toBe('snapshot_already_exists');
  expect((await client.get(`/v1/snapshots/by-name/raced`)).body.id).toBe(other.id);
});

test('an operation whose engine makes no snapshots any more ends as failed', async () => {
  const plain = await startForTest();
  const client = await plain.newOrg();
  const id = await startSmall(client, 'source');
  Object.assign(plain.runtime, { snapshots: undefined });
  expect((await capture(client, id, 'none'))['error']).toEqual({
    code: 'not_supported',
    message: expect.stringContaining('ask the operator'),
  });
  expect((await client.get('/v1/quotas')).body.snapshots).toBe(0);
});

test('an operation whose engine has no process ends when its time is over', async () => {
  const plain = await startForTest({ settings: { stopGraceMs: 0 } });
  const client = await plain.newOrg();
  const id = await startSmall(client, 'away');
  await plain.stopWorker();
  const { body } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'away' });
  // A process with another engine.
  await startForTest({ beside: plain });
  await plain.ctx.pool.query(
    `update snapshots set created_at = created_at - interval '32 minutes' where id = $1`,
    [body.id],
  );
  expect((await ended(client, body.id))['error'].code).toBe('timed_out');
  expect(await typesOf(client, body.id)).toEqual(['snapshot_requested', 'snapshot_failed']);
});
