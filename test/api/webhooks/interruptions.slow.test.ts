import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addMillis, now } from '../../../src/lib/instant.js';
import { webhookSettings } from '../../../src/settings.js';
import { sweepDeliveries } from '../../../src/webhooks/jobs.js';
import { urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { kill, launch, ready, type Launched, type Served } from '../../support/processes.js';
import { startReceiver, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const webhooks = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  timeoutMs: 60_000,
  // Only a leap of the clock makes a retry due, so that a count of attempts stays until then.
  firstRetryMs: 10 * MINUTE_MS,
};

let service: TestService;
let client: Client;
let receiver: Receiver;
/** How far the clock is ahead, in milliseconds. */
let ahead = 0;
/** Messages get no answer until this is called, then this status. */
let answer: (status: number) => void;

beforeAll(async () => {
  service = await startTestService({ settings: { webhooks }, now: () => addMillis(now(), ahead) });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
  receiver = await startReceiver();
  const answered = new Promise<number>((resolve) => (answer = resolve));
  receiver.answer = () => answered;
});
afterEach(() => receiver.close());

/** Seals earlier events first: a webhook would get those of the last moment. */
const hook = async (): Promise<string> => {
  await untilSealed(service.ctx.pool, client.org.id, 30_000);
  return (await client.post('/v1/webhooks', { url: receiver.url, event_types: ['volume_created'] })).body.id;
};
const make = (name: string) => client.post('/v1/volumes', { name });
const received = (count: number) =>
  until(
    () => Promise.resolve(receiver.messages.length),
    (length) => length >= count,
    30_000,
  );
const listed = async (id: string) =>
  (await client.get(`/v1/webhooks/${id}/deliveries`, { limit: 100 })).body.data as any[];
const all = (id: string, status: string, count: number) =>
  until(
    () => listed(id),
    (rows) => rows.length === count && rows.every((row) => row.status === status),
    30_000,
  );
const sweep = () => sweepDeliveries(service.ctx, new AbortController().signal);

describe('a webhook that is disabled with a backlog', () => {
  test('is sent nothing more until it is active again, then all of it, however much later', async () => {
    const id = await hook();
    const path = `/v1/webhooks/${id}`;
    await client.patch(path, { status: 'disabled' });
    for (let index = 0; index < 12; index += 1) await make(`volume-${index}`);
    await untilSealed(service.ctx.pool, client.org.id, 30_000);
    await client.patch(path, { status: 'active' });
    await received(4);
    await client.patch(path, { status: 'disabled' });
    answer(200);
    await until(
      () => listed(id),
      (rows) => rows.filter(({ status }) => status === 'delivered').length === 4,
      30_000,
    );
    // Any further attempt would precede the delivery to another webhook.
    const other = await startReceiver();
    await client.post('/v1/webhooks', { url: other.url, event_types: ['volume_created'] });
    await make('later');
    await until(
      () => Promise.resolve(other.messages.length),
      (length) => length === 1,
      30_000,
    );
    await other.close();
    expect(receiver.messages).toHaveLength(4);
    ahead += 3 * DAY_MS;
    await sweep();
    expect((await listed(id)).filter(({ status }) => status === 'pending')).toHaveLength(8);
    await client.patch(path, { status: 'active' });
    const rows = await all(id, 'delivered', 13);
    expect(rows.map(({ attempts }) => attempts)).toEqual(Array(13).fill(1));
    expect(new Set(receiver.messages.map(({ body }) => body.data.id)).size).toBe(13);
  });
});

describe('a receiver', () => {
  test('that answers 410 is sent nothing more', async () => {
    const id = await hook();
    await make('data');
    await received(1);
    answer(410);
    const state = await until(
      async () => (await client.get(`/v1/webhooks/${id}`)).body,
      ({ status }) => status === 'disabled',
      30_000,
    );
    expect(state.disabled_reason).toBe('gone');
    const [event] = (await client.get('/v1/events', { event_type: 'webhook_disabled' })).body.data;
    expect(event.payload).toMatchObject({ webhook_id: id, reason: 'gone', failures: 1 });
  });

  test('with Retry-After is left alone, and its delays start anew afterwards', async () => {
    receiver.headers = { 'retry-after': '3600' };
    const id = await hook();
    await make('data');
    await received(1);
    answer(503);
    const tried = (count: number) =>
      until(
        async () => (await listed(id))[0],
        (row) => row.results.length === count,
        30_000,
      );
    const pauseOf = ({ next_attempt_at, results }: any) =>
      (Date.parse(next_attempt_at) - Date.parse(results.at(-1).at)) / 1000;
    const rested = await tried(1);
    expect(pauseOf(rested)).toBeGreaterThanOrEqual(3_600);
    receiver.headers = {};
    let last = rested;
    for (let count = 2; count <= 4; count += 1) {
      ahead += 5 * 60 * MINUTE_MS;
      last = await tried(count);
    }
    // The longest delay, less its jitter.
    expect(pauseOf(last)).toBeGreaterThan(3 * 3_600);
    await client.post(`/v1/webhooks/${id}/deliveries/${rested.id}/redeliver`);
    receiver.answer = () => 503;
    // The count of attempts is five, the delay that of a first attempt.
    const again = await tried(5);
    expect(again.attempts).toBe(5);
    expect(pauseOf(again)).toBeLessThan(3_600);
    const { rows } = await service.ctx.pool.query<{ tried_before: number }>(
      'select tried_before from webhook_deliveries where org_id = $1 and id = $2',
      [client.org.id, rested.id],
    );
    expect(rows).toEqual([{ tried_before: 4 }]);
  });
});

describe('a killed process', () => {
  let launched: Launched;
  let second: Served;
  beforeAll(async () => {
    const own = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
    const fixed = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'error'];
    const reach = ['--webhook-allow', '127.0.0.1', '--webhook-http'];
    launched = launch(['serve', ...fixed, ...own, ...reach]);
    second = await ready(launched, service.directory);
    // Only the other process sends, on the same clock.
    await service.stopWorker();
    ahead = 0;
  });
  afterAll(async () => {
    kill('SIGKILL', launched.pid);
    await launched.exited;
  });

  /** Until a test and an event are with the receiver at once. Each attempt ends after ten seconds on a busy machine. */
  async function sendBoth(): Promise<{ id: string; tested: Promise<string> }> {
    for (;;) {
      receiver.messages = [];
      const id = await hook();
      await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
      await make(`data-${id}`);
      await untilSealed(service.ctx.pool, client.org.id);
      const tested = fetch(`${second.url}/v1/webhooks/${id}/test`, {
        method: 'POST',
        headers: { authorization: `Bearer ${client.key}` },
      }).then(
        () => 'answered',
        () => 'cut off',
      );
      await received(1);
      await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
      if ((await Promise.race([received(2).then(() => 'both'), tested])) === 'both') return { id, tested };
      await client.delete(`/v1/webhooks/${id}`);
    }
  }

  test('leaves its deliveries to another process; its test is given up, and repeated on request', async () => {
    const { id, tested } = await sendBoth();
    kill('SIGKILL', second.pid);
    await second.exited;
    expect(await tested).toBe('cut off');
    const killed = await listed(id);
    expect(killed.map(({ status, attempts }) => [status, attempts])).toEqual([
      ['pending', 1],
      ['pending', 1],
    ]);

    answer(200);
    const third = await startTestService({
      beside: service,
      sameEngine: true,
      settings: { webhooks },
      now: () => addMillis(now(), ahead),
    });
    try {
      // The claims of the killed process expire.
      ahead += 10 * MINUTE_MS;
      await received(3);
      await sweep();
      const [event, attempt] = await until(
        () => listed(id),
        (rows) => rows.every(({ status }) => status !== 'pending'),
        30_000,
      );
      expect([event.event_type, event.status, event.attempts, event.results.length]).toEqual([
        'volume_created',
        'delivered',
        2,
        1,
      ]);
      expect([attempt.event_type, attempt.status, attempt.attempts]).toEqual(['webhook_tested', 'failed', 1]);
      const ids = receiver.messages.map(({ headers }) => headers['webhook-id']);
      expect(ids).toEqual([attempt.event_id, event.event_id, event.event_id]);

      const again = await client.post(`/v1/webhooks/${id}/deliveries/${attempt.id}/redeliver`);
      expect([again.status, again.body.status]).toEqual([200, 'pending']);
      await all(id, 'delivered', 2);
      expect(receiver.messages.at(-1)!.headers['webhook-id']).toBe(attempt.event_id);
    } finally {
      await third.close();
    }
  });
});
