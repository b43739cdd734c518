import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { getQuotas } from '../../../src/quotas/queries.js';
import { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

let service: TestService;
let client: Client;
let runtime: HoldingRuntime;
const directory = mkdtempSync(join(tmpdir(), 'sandkeep-restart-'));
beforeAll(async () => {
  runtime = new HoldingRuntime(directory);
  service = await startTestService({ runtime: () => Promise.resolve(runtime) });
  client = await service.newOrg();
});
afterAll(async () => {
  await service.close();
  rmSync(directory, { recursive: true });
});

/** Stops wait for their release, so that no test depends on the speed of the machine. */
class HoldingRuntime extends SimulatedRuntime {
  private gate = Promise.resolve();

  /** Returns the function that releases them. */
  holdStops(): () => void {
    let release: () => void = () => undefined;
    this.gate = new Promise((resolve) => (release = resolve));
    return release;
  }

  override async stop(sandboxId: string): Promise<void> {
    await this.gate;
    await super.stop(sandboxId);
  }
}

const running = { start: true, wait_for: 'running' };
const waits = { wait_for: 'running', wait_timeout: 60 };

async function make(name: string): Promise<{ id: string; started_at: string }> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name), running);
  expect(body.status, text).toBe('running');
  return body;
}

/** Oldest first, without the events up to the first running status. */
async function eventsOf(id: string): Promise<any[]> {
  const { body } = await client.get('/v1/events', { resource_id: id, limit: 100 });
  return body.data.toReversed().slice(3);
}

const summary = (events: any[]) =>
  events.map(({ event_type, actor, payload }) => [
    event_type,
    actor.kind,
    payload.previous_status,
    payload.status,
    payload.reason,
  ]);

test('a restart ends the run, starts another, and answers when it runs', async () => {
  const { id, started_at } = await make('restarts');
  const { status, body } = await client.post(`/v1/sandboxes/${id}/restart`, undefined, waits);
  expect([status, body.status]).toEqual([200, 'running']);
  expect(body.started_at > started_at).toBe(true);
  const events = await eventsOf(id);
  expect(summary(events)).toEqual([
    ['sandbox_stop_requested', 'api_key', 'running', 'stopping', 'restart'],
    ['sandbox_stopped', 'system', 'stopping', 'stopped', 'restart'],
    ['sandbox_start_requested', 'api_key', 'stopped', 'starting', 'requested'],
    ['sandbox_started', 'system', 'starting', 'running', 'run_started'],
  ]);
  const [first, , second] = events.map(({ payload }) => payload.run_id);
  expect(second).not.toBe(first);
  expect((await client.post('/v1/sandboxes/by-name/restarts/restart', undefined, waits)).body.status).toBe(
    'running',
  );
});

test('a restart without a wait answers stopping at once, and the sandbox runs again', async () => {
  const { id, started_at } = await make('at-once');
  const release = runtime.holdStops();
  expect((await client.post(`/v1/sandboxes/${id}/restart`, {})).body.status).toBe('stopping');
  // A second restart joins the first.
  expect((await client.post(`/v1/sandboxes/${id}/restart`, {})).body.status).toBe('stopping');
  release();
  await until(
    () => client.get(`/v1/sandboxes/${id}`),
    ({ body }) => body.status === 'running' && body.started_at > started_at,
  );
  expect((await eventsOf(id)).map(({ event_type }) => event_type)).toEqual([
    'sandbox_stop_requested',
    'sandbox_stopped',
    'sandbox_start_requested',
    'sandbox_started',
  ]);
});

test('a stop that waits answers stopped, and a start that waits follows a stop', async () => {
  const { id } = await make('waits');
  const stopped = await client.post(`/v1/sandboxes/${id}/stop`, undefined, { wait_for: 'stopped' });
  expect([stopped.status, stopped.body.status]).toEqual([200, 'stopped']);
  expect(stopped.body.stopped_at).not.toBeNull();
  const again = await client.post(`/v1/sandboxes/${id}/stop`, undefined, { wait_for: 'stopped' });
  expect(again.body).toEqual(stopped.body);
  await client.post(`/v1/sandboxes/${id}/start`, undefined, waits);

  const release = runtime.holdStops();
  expect((await client.post(`/v1/sandboxes/${id}/stop`, {})).body.status).toBe('stopping');
  const refused = await client.post(`/v1/sandboxes/${id}/start`, {});
  expect([refused.status, refused.body.error.code]).toEqual([409, 'invalid_state_transition']);
  const starting = client.post(`/v1/sandboxes/${id}/start`, undefined, waits);
  await until(
    () => eventsOf(id),
    (events) => events.at(-1).event_type === 'sandbox_start_queued',
  );
  release();
  const started = await starting;
  expect([started.status, started.body.status]).toEqual([200, 'running']);
  expect(summary((await eventsOf(id)).slice(-5))).toEqual([
    ['sandbox_stop_requested', 'api_key', 'running', 'stopping', 'requested'],
    ['sandbox_start_queued', 'api_key', 'stopping', 'stopping', 'requested'],
    ['sandbox_stopped', 'system', 'stopping', 'stopped', 'requested'],
    ['sandbox_start_requested', 'api_key', 'stopped', 'starting', 'requested'],
    ['sandbox_started', 'system', 'starting', 'running', 'run_started'],
  ]);
});

test('a stop or a delete during a restart cancels the start', async () => {
  const { id } = await make('given-up');
  const { id: gone } = await make('gone');
  const release = runtime.holdStops();
  await client.post(`/v1/sandboxes/${id}/restart`, {});
  expect((await client.post(`/v1/sandboxes/${id}/stop`, {})).body.status).toBe('stopping');
  await client.post(`/v1/sandboxes/${gone}/restart`, {});
  await client.delete(`/v1/sandboxes/${gone}`);
  release();
  await untilStatus(client, id, 'stopped');
  expect(summary(await eventsOf(id)).map(([type]) => type)).toEqual([
    'sandbox_stop_requested',
    'sandbox_stop_requested',
    'sandbox_stopped',
  ]);

  await untilStatus(client, gone, null);
  await until(
    () => service.runtime.list(),
    (held) => held.every(({ sandboxId }) => sandboxId !== gone),
  );
  const { rows } = await service.ctx.pool.query<{ open: number }>(
    'select count(*) filter (where end_reason is null) as open, count(*) as all from runs where sandbox_id = $1',
    [gone],
  );
  expect(rows).toEqual([{ open: 0, all: 1 }]);
});

test('a restart keeps the slot of its sandbox among the running ones', async () => {
  const mine = await service.newOrg();
  await service.ctx.pool.query('update quotas set max_concurrent_persistent_running = 1 where org_id = $1', [
    mine.org.id,
  ]);
  const { body: one } = await mine.post('/v1/sandboxes', smallRequest('one'), running);
  const { body: two } = await mine.post('/v1/sandboxes', smallRequest('two'));
  const release = runtime.holdStops();
  expect((await mine.post(`/v1/sandboxes/${one.id}/restart`, {})).body.status).toBe('stopping');
  const refused = await mine.post(`/v1/sandboxes/${two.id}/start`, {});
  expect([refused.status, refused.body.error.code]).toEqual([403, 'quota_exceeded']);
  release();
  await until(
    () => mine.get(`/v1/sandboxes/${one.id}`),
    ({ body }) => body.status === 'running' && body.started_at > one.started_at,
  );

  // A start after a stop takes a slot, and is refused without a free one.
  const goOn = runtime.holdStops();
  await mine.post(`/v1/sandboxes/${one.id}/stop`, {});
  expect((await mine.post(`/v1/sandboxes/${two.id}/start`, {})).status).toBe(200);
  expect((await mine.post(`/v1/sandboxes/${one.id}/start`, undefined, waits)).body.error.code).toBe(
    'quota_exceeded',
  );
  goOn();
  await untilStatus(mine, one.id, 'stopped');
  await mine.post(`/v1/sandboxes/${two.id}/stop`, undefined, { wait_for: 'stopped' });
  const counted = await getQuotas(service.ctx.pool, mine.org.id);
  expect([counted!.existing, counted!.persistent_running]).toEqual([2, 0]);
});

test('a suspended organization cannot restart a sandbox', async () => {
  const mine = await service.newOrg();
  const { body } = await mine.post('/v1/sandboxes', smallRequest('one'), running);
  await service.ctx.pool.query('update quotas set is_suspended = true where org_id = $1', [mine.org.id]);
  const { status, body: refusal } = await mine.post(`/v1/sandboxes/${body.id}/restart`, {});
  expect([status, refusal.error.code]).toEqual([403, 'quota_exceeded']);
  expect((await mine.get(`/v1/sandboxes/${body.id}`)).body.status).toBe('running');
});
