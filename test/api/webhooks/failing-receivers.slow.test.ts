import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addMillis, now } from '../../../src/lib/instant.js';
import { webhookSettings } from '../../../src/settings.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { startReceiver, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const HOUR_MS = 3_600_000;
const webhooks = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  // Retries and expiry depend on the clock alone.
  timeoutMs: 300_000,
  firstRetryMs: HOUR_MS,
};
const only = { event_types: ['volume_created'] };

let service: TestService;
let client: Client;
let receiver: Receiver;
/** How far the clock is ahead, in milliseconds. */
let ahead = 0;
const clock = () => addMillis(now(), ahead);

beforeAll(async () => {
  service = await startTestService({ settings: { webhooks }, now: clock });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
  receiver = await startReceiver();
});
afterEach(() => receiver.close());

/** Seals earlier events first: a webhook would get those of the last moment. */
async function hook(): Promise<string> {
  await untilSealed(service.ctx.pool, client.org.id, 60_000);
  return (await client.post('/v1/webhooks', { url: receiver.url, ...only })).body.id;
}
async function make(prefix: string, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1)
    await client.post('/v1/volumes', { name: `${prefix}-${index}` });
}
const nameOf = ({ body }: Receiver['messages'][number]): string => body.data.payload.name ?? body.type;
const names = () => receiver.messages.map(nameOf);
const count = (prefix: string) => names().filter((name) => name.startsWith(prefix)).length;
const came = (prefix: string, wanted: number) =>
  until(
    () => Promise.resolve(count(prefix)),
    (found) => found >= wanted,
    60_000,
  );
async function state(id: string): Promise<{ failures: number; rest: number | null }> {
  const { rows } = await service.ctx.pool.query<{ failures: number; rest: number | null }>(
    'select failures, extract(epoch from resume_at - $2::timestamptz)::float8 as rest from webhooks where id = $1',
    [id, clock()],
  );
  return rows[0]!;
}
const failed = (id: string, failures: number) =>
  until(
    () => state(id),
    (found) => found.failures >= failures,
    60_000,
  );
/** Waits for two deliveries to another organization. Any further attempt would precede them. */
async function aLookLater(): Promise<void> {
  const other = await service.newOrg();
  const good = await startReceiver();
  await other.post('/v1/webhooks', { url: good.url, ...only });
  for (let looks = 1; looks <= 2; looks += 1) {
    await other.post('/v1/volumes', { name: `other-${looks}` });
    await until(
      () => Promise.resolve(good.messages.length),
      (length) => length >= looks,
      60_000,
    );
  }
  await good.close();
}

describe('events that the receiver refuses', () => {
  test('do not delay others, at any number', async () => {
    receiver.answer = (message) => (nameOf(message).startsWith('bad') ? 422 : 200);
    const id = await hook();
    await make('bad', 60);
    await make('good', 1);
    await came('good', 1);
    expect((await client.get(`/v1/webhooks/${id}`)).body.failing_since).toBe(null);
    // These exceed the limit of pending deliveries above which the log is not read.
    await service.ctx.pool.query(
      `insert into webhook_deliveries
         (org_id, webhook_id, id, event_id, event_type, seq, status, attempts, refused, due_at, expires_at, created_at)
       select $1, $2, gen_random_uuid(), gen_random_uuid(), 'volume_created', 1000000 + n, 'pending', 1, true, $3,
         $3, $3
       from generate_series(1, 1100) n`,
      [client.org.id, id, addMillis(clock(), HOUR_MS)],
    );
    await make('good-too', 1);
    await came('good-too', 1);
  });

  test('are retried after all others', async () => {
    receiver.answer = (message) => (nameOf(message).startsWith('bad') ? 422 : 200);
    const id = await hook();
    await make('bad', 4);
    await came('bad', 4);
    await until(
      async () => (await client.get(`/v1/webhooks/${id}/deliveries`)).body.data,
      (rows) => rows.every(({ results }: any) => results.length === 1),
      60_000,
    );
    await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
    ahead += 2 * HOUR_MS;
    await make('good', 4);
    await untilSealed(service.ctx.pool, client.org.id, 60_000);
    await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
    await came('bad', 8);
    expect(
      names()
        .slice(4, 8)
        .map((name) => name.slice(0, 4)),
    ).toEqual(Array(4).fill('good'));
  });

  test('do not open the circuit breaker when one of them fails again and again', async () => {
    receiver.answer = (message) => (nameOf(message).startsWith('bad') ? 500 : 200);
    const id = await hook();
    await make('bad', 1);
    for (let tries = 1; tries <= 5; tries += 1) {
      const row = await until(
        async () => (await client.get(`/v1/webhooks/${id}/deliveries`)).body.data[0],
        (found) => found?.results.length === tries,
        60_000,
      );
      expect(row.status).toBe('pending');
      // The longest delay with its random part; not after the last attempt.
      if (tries < 5) ahead += 5 * HOUR_MS;
    }
    expect(await state(id)).toEqual({ failures: 1, rest: null });
    await make('good', 1);
    await came('good', 1);
    await until(
      () => state(id),
      ({ failures }) => failures === 0,
      60_000,
    );
  });
});

describe('a receiver that is down', () => {
  test('is probed with an untried delivery, and then gets all', async () => {
    receiver.answer = (message) => (nameOf(message).startsWith('bad') ? 500 : 200);
    const id = await hook();
    await make('bad', 5);
    await failed(id, 5);
    await make('good', 2);
    await untilSealed(service.ctx.pool, client.org.id, 60_000);
    // All failed deliveries are due again, and older.
    ahead += 2 * HOUR_MS;
    await came('good', 2);
    expect(names()[5]).toMatch(/^good/);
  });

  test('is left alone for ten seconds at first, at any number of concurrent attempts and processes', async () => {
    const second = await startTestService({
      beside: service,
      sameEngine: true,
      settings: { webhooks },
      now: clock,
    });
    try {
      let release: (status: number) => void = () => undefined;
      const released = new Promise<number>((resolve) => (release = resolve));
      // Later attempts are probes, and get no answer.
      receiver.answer = () => (receiver.messages.length <= 8 ? released : null);
      const id = await hook();
      await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
      await make('data', 12);
      await untilSealed(service.ctx.pool, client.org.id, 60_000);
      await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
      await came('data', 8);
      release(500);
      await until(
        async () => (await client.get(`/v1/webhooks/${id}/deliveries`)).body.data,
        (rows) => rows.filter(({ results }: any) => results.length === 1).length === 8,
        60_000,
      );
      const { failures, rest } = await state(id);
      expect(failures).toBe(5);
      expect(rest).toBeLessThanOrEqual(10);
      ahead += 20_000;
      // Each process sends at most one probe.
      await came('data', 9);
      await aLookLater();
      expect(count('data')).toBeLessThanOrEqual(10);
    } finally {
      await receiver.close();
      await second.close();
    }
  });
});

test('a fault in the keys of the service does not count against the receiver', async () => {
  const id = await hook();
  await service.ctx.pool.query(`update webhooks set sealed = '\\x00' where id = $1`, [id]);
  await make('data', 6);
  const rows = await until(
    async () => (await client.get(`/v1/webhooks/${id}/deliveries`)).body.data,
    (found) => found.length === 6 && found.every(({ results }: any) => results.length === 1),
    60_000,
  );
  expect(rows[0].results[0].error).toContain('the secret of the webhook');
  expect(await state(id)).toEqual({ failures: 0, rest: null });
});

describe('a receiver with Retry-After', () => {
  test('is left alone for that time, whatever else it answers meanwhile', async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    receiver.answer = async () => {
      const number = receiver.messages.length;
      if (number === 1) return { status: 429, headers: { 'retry-after': '7200' } };
      if (number <= 4) await released;
      return 200;
    };
    const id = await hook();
    await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
    await make('data', 4);
    await untilSealed(service.ctx.pool, client.org.id, 60_000);
    await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
    await came('data', 4);
    await until(
      () => state(id),
      ({ rest }) => rest !== null,
      60_000,
    );
    release();
    await until(
      async () => (await client.get(`/v1/webhooks/${id}/deliveries`, { status: 'delivered' })).body.data,
      (rows) => rows.length === 3,
      60_000,
    );
    expect((await state(id)).rest).toBeGreaterThan(3_600);
    await make('later', 1);
    await untilSealed(service.ctx.pool, client.org.id, 60_000);
    await aLookLater();
    expect(count('later')).toBe(0);
    ahead += 2 * HOUR_MS;
    await came('later', 1);
    await came('data', 5);
  });

  test('gets its backlog once a test succeeds', async () => {
    receiver.answer = () => ({ status: 503, headers: { 'retry-after': '7200' } });
    const id = await hook();
    await make('data', 1);
    await failed(id, 1);
    await make('later', 1);
    receiver.answer = () => 200;
    expect((await client.post(`/v1/webhooks/${id}/test`)).body.status).toBe('delivered');
    await came('later', 1);
  });
});
