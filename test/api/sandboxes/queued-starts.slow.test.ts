import { expect, test } from 'vitest';
import { noteLongWaits } from '../../../src/sandboxes/placement/wait-notices.js';
import { run, runJson, urlOf } from '../../support/cli.js';
import { startForTest, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

const room = { simulated: { capacity: { vcpus: 2, memoryMib: 1024 } } };
const two = { resources: { vcpus: 2, memory_mib: 256 } };

const isLogged = (service: TestService, text: string) =>
  until(
    () => Promise.resolve(service.logs),
    (lines) => lines.some((line) => line.includes(text)),
  );

test('a start queued for long records one audit event, with any number of processes', async () => {
  const service = await startForTest({ ...room, settings: { waitNoticeMs: 0 } });
  const beside = await startForTest({ beside: service, worker: false, settings: { waitNoticeMs: 0 } });
  const client = await service.newOrg();
  const { body: first } = await client.post('/v1/sandboxes', smallRequest('first', two), {
    start: true,
    wait_for: 'running',
  });
  const { body: late } = await client.post('/v1/sandboxes', smallRequest('late', two), { start: true });
  await until(
    () => client.get(`/v1/sandboxes/${late.id}`),
    ({ body }) => body.status_reason === 'insufficient_capacity',
  );
  const { signal } = new AbortController();
  const looks = Array.from({ length: 10 }, () => [service, beside]).flat();
  await Promise.all(looks.map(({ ctx }) => noteLongWaits(ctx, signal)));
  // The first sandbox may have waited for a moment too.
  const events = async () => {
    const { body } = await client.get('/v1/events', { event_type: 'sandbox_start_waiting' });
    const { data } = body as { data: { payload: { sandbox_id: string; reason: string } }[] };
    return data.filter(({ payload }) => payload.sandbox_id === late.id);
  };
  const [event, ...others] = await events();
  expect(others).toEqual([]);
  expect(event).toMatchObject({
    actor: { kind: 'system', code: 'placement' },
    payload: {
      sandbox_id: late.id,
      name: 'late',
      previous_status: 'starting',
      status: 'starting',
      vcpus: 2,
      memory_mib: 256,
      disk_mib: 0,
    },
  });
  await client.post(`/v1/sandboxes/${first.id}/stop`, {});
  await untilStatus(client, late.id, 'running');

  // The next run is a different one.
  await client.post(`/v1/sandboxes/${late.id}/stop`, {}, { wait_for: 'stopped' });
  await service.stopWorker();
  await client.post(`/v1/sandboxes/${late.id}/start`, {});
  // The threshold compares with the previous millisecond.
  await until(
    async () => {
      await noteLongWaits(service.ctx, signal);
      return (await events()).length;
    },
    (count) => count === 2,
  );
  expect((await events())[0]!.payload.reason).toBe('no_worker');
});

test('a start queued briefly records no event', async () => {
  const service = await startForTest({ ...room, worker: false });
  const client = await service.newOrg();
  await client.post('/v1/sandboxes', smallRequest('new', two), { start: true });
  await noteLongWaits(service.ctx, new AbortController().signal);
  const { body } = await client.get('/v1/events', { event_type: 'sandbox_start_waiting' });
  expect(body.data).toEqual([]);
});

test('the log and the worker list show the number of queued starts and the longest wait', async () => {
  const service = await startForTest(room);
  const env = { DATABASE_URL: urlOf(service.database) };
  const client = await service.newOrg();
  const { body: first } = await client.post('/v1/sandboxes', smallRequest('first', two), {
    start: true,
    wait_for: 'running',
  });
  await client.post('/v1/sandboxes', smallRequest('late', two), { start: true });
  await isLogged(service, 'starts wait for room on a worker');
  const line = service.logs.find((text) => text.includes('starts wait for room'));
  expect(JSON.parse(line!)).toMatchObject({ starts: 1, vcpus: 2, memoryMib: 256 });

  const [worker] = await runJson(['worker', 'list'], { env });
  expect(worker).toMatchObject({
    vcpus: 2,
    used_vcpus: 2,
    memory_mib: 1024,
    used_memory_mib: 256,
    waiting: 1,
    waiting_vcpus: 2,
    waiting_memory_mib: 256,
  });
  const { out } = await run(['worker', 'list'], { env });
  expect(out).toMatch(/WAITING/);
  expect(out).toMatch(/ 2 \/ 2 .* 256 \/ 1024 .* 1 for 2 vCPU, 256 MiB +live/);

  await client.delete(`/v1/sandboxes/${first.id}`);
  await isLogged(service, 'no start waits for room any more');
  expect((await runJson(['worker', 'list'], { env }))[0].waiting).toBe(0);
});
