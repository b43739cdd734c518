import { describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { Waker, WAKE_LIMITS } from '../../../src/previews/wake/waker.js';
import { newId } from '../../../src/lib/uuid.js';
import { setQuotas } from '../../../src/quotas/set.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, type TestOptions, type TestService } from '../../support/service.js';

const WAKES = { lifecycle: { wake_on_request: true } };
const neverLeaves = new AbortController().signal;

interface Scene {
  service: TestService;
  client: Client;
  waker: Waker;
}

async function scene(options: TestOptions = {}, limits = WAKE_LIMITS): Promise<Scene> {
  const service = await startForTest(options);
  return { service, client: await service.newOrg(), waker: new Waker(service.ctx, limits) };
}

async function asleep(client: Client, name: string, more: object = WAKES) {
  const { body } = await client.post('/v1/sandboxes', { ...smallRequest(name), ...more });
  return { orgId: client.org.id, sandboxId: body.id as string, previewId: newId() };
}

const patience = (millis = 60_000) => ({ until: performance.now() + millis, signal: neverLeaves });

async function reasonOf(wait: Promise<void>): Promise<string> {
  return wait.then(
    () => 'running',
    (error: { body?: any; message: string }) =>
      error.body?.error.details?.reason ?? error.body?.error.code ?? error.message,
  );
}

async function startsOf(client: Client, id: string): Promise<any[]> {
  const { body } = await client.get('/v1/events', { event_type: 'sandbox_start_requested', resource_id: id });
  return body.data;
}

describe('a request to a sandbox that sleeps', () => {
  test('starts it once for a hundred that wait in two processes, as the system and with the preview', async () => {
    const { service, client, waker } = await scene({ simulated: { startMs: 100 } });
    const other = await startForTest({ beside: service, worker: false });
    const sleeper = await asleep(client, 'web');
    const otherWaker = new Waker(other.ctx);
    const waits = Array.from({ length: 100 }, (_, at) =>
      (at % 2 ? waker : otherWaker).wait(sleeper, patience()),
    );
    await Promise.all(waits);
    const { body } = await client.get(`/v1/sandboxes/${sleeper.sandboxId}`);
    expect([body.status, body.spec.lifecycle.wake_on_request]).toEqual(['running', true]);
    const runs = await service.ctx.pool.query('select id from runs where sandbox_id = $1', [
      sleeper.sandboxId,
    ]);
    expect(runs.rows).toHaveLength(1);
    const starts = await startsOf(client, sleeper.sandboxId);
    expect(starts).toMatchObject([
      {
        actor: { kind: 'system', code: 'preview_wake' },
        payload: { reason: 'preview_request', preview_id: sleeper.previewId, run_id: runs.rows[0].id },
      },
    ]);
  });

  test('gets the reason with every other one when a quota of the organization does not allow it', async () => {
    const { service, client, waker } = await scene();
    const none = { max_concurrent_persistent_running: 0 };
    await setQuotas(service.ctx.pool, client.org.id, none, operator('test'));
    const sleeper = await asleep(client, 'web');
    const reasons = await Promise.all(
      Array.from({ length: 20 }, () => reasonOf(waker.wait(sleeper, patience()))),
    );
    expect(new Set(reasons)).toEqual(new Set(['quota']));
    expect(await startsOf(client, sleeper.sandboxId)).toEqual([]);
  });

  test('is bounded for each sandbox and in all, and gives its place back when its client leaves', async () => {
    const limits = { total: 3, each: 3, ofSandbox: 2 };
    const { client, waker } = await scene({ worker: false }, limits);
    const [one, two] = [await asleep(client, 'one'), await asleep(client, 'two')];
    const leaves = new AbortController();
    const left = reasonOf(waker.wait(one, { ...patience(), signal: leaves.signal }));
    const ends = new AbortController();
    const stays = [one, two].map((each) =>
      reasonOf(waker.wait(each, { ...patience(), signal: ends.signal })),
    );
    expect(await reasonOf(waker.wait(one, patience()))).toBe('too_many_waiting');
    expect(await reasonOf(waker.wait(two, patience()))).toBe('too_many_waiting');
    leaves.abort(new Error('left'));
    expect(await left).toBe('left');
    expect(await reasonOf(waker.wait(two, patience(50)))).toBe('starting');
    ends.abort(new Error('ended'));
    expect(await Promise.all(stays)).toEqual(['ended', 'ended']);
  });

  test('ends its wait when the sandbox is deleted or stopped meanwhile', async () => {
    const { client, waker } = await scene({ worker: false });
    const [deleted, stopped] = [await asleep(client, 'deleted'), await asleep(client, 'stopped')];
    await Promise.all([waker.begin(deleted), waker.begin(stopped)]);
    const waits = [deleted, stopped].map((each) => reasonOf(waker.wait(each, patience())));
    await client.delete(`/v1/sandboxes/${deleted.sandboxId}`);
    await client.post(`/v1/sandboxes/${stopped.sandboxId}/stop`, {});
    expect(await Promise.all(waits)).toEqual(['sandbox_not_found', 'stopped']);
    expect(await reasonOf(waker.wait(deleted, patience()))).toBe('sandbox_not_found');
  });

  test('does not start a sandbox for ever whose starts fail, and starts it again after a while', async () => {
    let isBroken = true;
    const { service, client, waker } = await scene({
      simulated: { failStart: () => (isBroken ? 'no such image: registry.internal/secret' : undefined) },
    });
    const sleeper = await asleep(client, 'web');
    const wait = async () => reasonOf(waker.wait(sleeper, patience()));
    expect(await wait()).toBe('start_failed');
    // The first delay is two seconds, which a busy machine outlasts. So the run ends later meanwhile.
    const endAt = (end: string) =>
      service.ctx.pool.query(
        `update runs set started_at = ${end}, stopped_at = ${end} where sandbox_id = $1`,
        [sleeper.sandboxId],
      );
    await endAt("now() + interval '10 minutes'");
    for (let at = 0; at < 5; at += 1) expect(await wait()).toBe('starts_fail');
    expect(await startsOf(client, sleeper.sandboxId)).toHaveLength(1);
    isBroken = false;
    await endAt('null');
    const again = await until(wait, (reason) => reason !== 'starts_fail');
    expect(again).toBe('running');
    expect(await startsOf(client, sleeper.sandboxId)).toHaveLength(2);
  });

  test('wakes after an idle stop and while it stops; only a new visit wakes after the stop of a caller', async () => {
    const { client, waker } = await scene({ simulated: { stopMs: 300 } });
    const sleeper = await asleep(client, 'web');
    const path = `/v1/sandboxes/${sleeper.sandboxId}`;
    await waker.wait(sleeper, patience());
    const background = async () => reasonOf(waker.wait(sleeper, { ...patience(), isBackground: true }));
    await client.post(`${path}/stop`, {});
    expect(await background()).toBe('stopped_by_caller');
    await waker.wait(sleeper, patience());
    await client.post(`${path}/stop`, {}, { wait_for: 'stopped' });
    expect((await client.get(path)).body.stop_reason).toBe('requested');
    await until(background, (reason) => reason === 'stopped_by_caller');
    await waker.wait(sleeper, patience());
    expect((await client.get(path)).body.status).toBe('running');
  });

  test('is measured: a start for all that wait and ask again, and the reason of a refusal', async () => {
    const { service, client } = await scene({ simulated: { startMs: 300 } });
    const seen: [string, number][] = [];
    const previewWoken = (outcome: string, seconds: number) => void seen.push([outcome, seconds]);
    const waker = new Waker({ ...service.ctx, meters: { ...service.ctx.meters, previewWoken } });
    const sleeper = await asleep(client, 'web');
    // A page and programs get an answer at once, and ask again.
    await waker.begin(sleeper);
    await waker.begin(sleeper);
    await Promise.all([waker.wait(sleeper, patience()), waker.wait(sleeper, patience())]);
    expect(seen).toEqual([['running', expect.any(Number)]]);
    expect(seen[0]![1]).toBeGreaterThan(0.2);
    // The stored status was older: nothing had to start.
    await waker.wait(sleeper, patience());
    await reasonOf(waker.wait(await asleep(client, 'plain', {}), patience()));
    expect(seen.slice(1).map(([outcome]) => outcome)).toEqual(['not_allowed']);
  });

  test('starts nothing without the field, nor after a violation of a secret', async () => {
    const { service, client, waker } = await scene();
    const plain = await asleep(client, 'plain', {});
    expect(await reasonOf(waker.wait(plain, patience()))).toBe('not_allowed');
    const violator = await asleep(client, 'violator');
    await waker.wait(violator, patience());
    await client.post(`/v1/sandboxes/${violator.sandboxId}/stop`, {});
    await untilStatus(client, violator.sandboxId, 'stopped');
    await service.ctx.pool.query("update sandboxes set stop_reason = 'secret_violation' where id = $1", [
      violator.sandboxId,
    ]);
    expect(await reasonOf(waker.wait(violator, patience()))).toBe('secret_violation');
    const both = { lifecycle: { wake_on_request: true, ephemeral: true } };
    const { status, body } = await client.post('/v1/sandboxes', { ...smallRequest('both'), ...both });
    expect([status, body.error.details.field]).toEqual([400, 'lifecycle.wake_on_request']);
  });
});
