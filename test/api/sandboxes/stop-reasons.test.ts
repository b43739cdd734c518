import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({
    simulated: { failStart: ({ spec }) => (spec.image === 'broken' ? 'the image is broken' : undefined) },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

const WAIT = { start: true, wait_for: 'running', wait_timeout: 90 };
const COMMAND = { runtime: { cmd: ['work'] }, lifecycle: { ends_with_command: true } };

/** Each way out of a run: the specification, the cause of the end, and the answer. */
const ENDS: [
  name: string,
  spec: Record<string, unknown>,
  cause: (id: string) => unknown,
  answer: { status: string; stop_reason: string; stop_message: string | RegExp },
][] = [
  [
    'requested',
    {},
    (id) => client.post(`/v1/sandboxes/${id}/stop`, {}),
    { status: 'stopped', stop_reason: 'requested', stop_message: 'a caller stopped it' },
  ],
  [
    'idle',
    { lifecycle: { idle_timeout_secs: 1 } },
    () => undefined,
    { status: 'stopped', stop_reason: 'idle', stop_message: /^it was idle for 1 seconds/ },
  ],
  [
    'max_duration',
    { lifecycle: { max_duration_secs: 1 } },
    () => undefined,
    { status: 'stopped', stop_reason: 'max_duration', stop_message: /^it ran for 1 seconds/ },
  ],
  [
    'command',
    COMMAND,
    (id) => exit(id, 0),
    { status: 'stopped', stop_reason: 'command', stop_message: 'its command ended with code 0' },
  ],
  [
    'failing-command',
    COMMAND,
    (id) => exit(id, 3),
    { status: 'failed', stop_reason: 'command', stop_message: 'the main process ended with code 3' },
  ],
  [
    'killed',
    {},
    (id) => exit(id, 137),
    { status: 'failed', stop_reason: 'engine', stop_message: /^the main process ended with code 137/ },
  ],
  [
    'vanished',
    {},
    (id) => service.runtime.destroy(id),
    { status: 'failed', stop_reason: 'lost', stop_message: /no longer holds the sandbox/ },
  ],
  [
    'refused',
    { image: { type: 'oci', reference: 'broken' } },
    () => undefined,
    { status: 'failed', stop_reason: 'start_failed', stop_message: 'the image is broken' },
  ],
];

function exit(id: string, code: number): void {
  (service.runtime as SimulatedRuntime).exit(id, code);
}

test.each(ENDS)('show, list and event say why: %s', async (name, spec, cause, answer) => {
  const made = await client.post('/v1/sandboxes', smallRequest(name, spec), WAIT);
  if (made.body.status === 'running') expect(made.body.stop_reason).toBeNull();
  await cause(made.body.id);
  const { status, stop_reason, stop_message } = answer;
  const { body } = await untilStatus(client, made.body.id, status);
  expect(body).toMatchObject({ status, stop_reason, stop_message: expect.stringMatching(stop_message) });

  const found = await client.get('/v1/sandboxes', { stop_reason, name_prefix: name });
  expect(found.body.data).toEqual([body]);
  const [event] = (await eventsOf(body.id)).body.data;
  expect(event).toMatchObject({
    event_type: `sandbox_${status}`,
    payload: { status, stop_reason, message: body.stop_message },
  });
});

test('a list takes several reasons, with other filters, and refuses unknown ones', async () => {
  const labels = { kind: 'filtered' };
  const one = await client.post('/v1/sandboxes', smallRequest('one', { labels }), WAIT);
  const other = await client.post('/v1/sandboxes', smallRequest('other', { labels }), WAIT);
  await client.post('/v1/sandboxes', smallRequest('third', { labels }), WAIT);
  await client.post(`/v1/sandboxes/${one.body.id}/stop`, {}, { wait_for: 'stopped' });
  exit(other.body.id, 137);
  await untilStatus(client, other.body.id, 'failed');
  const asked = { labels: JSON.stringify(labels), sort: 'name', limit: 1 };
  const query = new URLSearchParams({ ...asked, limit: '1' });
  for (const reason of ['engine', 'requested']) query.append('stop_reason', reason);
  const first = await client.get(`/v1/sandboxes?${query.toString()}`);
  expect([first.body.data[0].name, first.body.has_more]).toEqual(['one', true]);
  query.set('cursor', first.body.next_cursor);
  expect((await client.get(`/v1/sandboxes?${query.toString()}`)).body.data[0].name).toBe('other');
  const running = await client.get('/v1/sandboxes', { ...asked, status: 'running', stop_reason: 'engine' });
  expect(running.body.data).toEqual([]);
  expect((await client.get('/v1/sandboxes', { stop_reason: 'idle_timeout' })).status).toBe(400);
});

test('the next start clears the reason, and so does a restart', async () => {
  const { body: made } = await client.post('/v1/sandboxes', smallRequest('again'), WAIT);
  await client.post(`/v1/sandboxes/${made.id}/stop`, {}, { wait_for: 'stopped' });
  const cleared = { stop_reason: null, stop_message: null };
  expect((await client.post(`/v1/sandboxes/${made.id}/start`, {})).body).toMatchObject(cleared);
  expect((await untilStatus(client, made.id, 'running')).body).toMatchObject(cleared);
  const restarted = await client.post(`/v1/sandboxes/${made.id}/restart`, {}, { wait_for: 'running' });
  expect(restarted.body).toMatchObject({ status: 'running', ...cleared });
});

function eventsOf(id: string): Promise<Answer> {
  return client.get('/v1/events', { resource_id: id, limit: 1 });
}
