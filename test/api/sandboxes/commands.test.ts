import { afterAll, beforeAll, expect, test } from 'vitest';
import { now } from '../../../src/lib/instant.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const WAIT = { start: true, wait_for: 'running', wait_timeout: 90 };
const RUNS = { status: 'running', exit_code: null, signal: null, oom_killed: null, ended_at: null };
const cmd = { runtime: { cmd: ['serve'] } };

test('the end of a command is shown and listed, and recorded once, while the sandbox runs on', async () => {
  const { body: made } = await client.post('/v1/sandboxes', smallRequest('serves', cmd), WAIT);
  expect(made.command).toEqual(RUNS);
  const endedAt = now();
  (service.runtime as SimulatedRuntime).endCommand(made.id, {
    exitCode: 137,
    signal: 9,
    outOfMemory: true,
    endedAt,
  });
  const { body } = await until(
    () => client.get(`/v1/sandboxes/${made.id}`),
    (answer) => answer.body.command.status === 'killed',
  );
  expect(body).toMatchObject({ status: 'running', command: { exit_code: 137, signal: 9, oom_killed: true } });
  expect((await client.get('/v1/sandboxes', { name_prefix: 'serves' })).body.data).toEqual([body]);
  const events = () =>
    client.get('/v1/events', { resource_id: made.id, event_type: 'sandbox_command_ended' });
  const payload = { sandbox_id: made.id, name: 'serves', ...body.command };
  expect((await events()).body.data).toMatchObject([{ actor: { kind: 'system' }, payload }]);

  const restarted = await client.post(`/v1/sandboxes/${made.id}/restart`, {}, { wait_for: 'running' });
  expect(restarted.body.command).toEqual(RUNS);
  expect((await events()).body.data).toHaveLength(1);
  const stranger = await service.newOrg();
  const foreign = await stranger.get('/v1/events', { event_type: 'sandbox_command_ended' });
  expect(foreign.body.data).toEqual([]);
});

test('a run that ends takes its command with it; without a command there is none', async () => {
  const lifecycle = { ends_with_command: true };
  const batch = await client.post('/v1/sandboxes', smallRequest('batch', { ...cmd, lifecycle }), WAIT);
  (service.runtime as SimulatedRuntime).exit(batch.body.id, 4);
  const { body } = await untilStatus(client, batch.body.id, 'failed');
  expect(body.command).toEqual({
    status: 'exited',
    exit_code: 4,
    signal: null,
    oom_killed: false,
    ended_at: body.stopped_at,
  });
  const plain = await client.post('/v1/sandboxes', smallRequest('plain'), WAIT);
  expect(plain.body.command).toBeNull();
});
