import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { inTransaction } from '../../../src/db/transaction.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { webhookSettings } from '../../../src/settings.js';
import { sweepDeliveries } from '../../../src/webhooks/jobs.js';
import { makeClient, type Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { startReceiver, verify, type Receiver } from '../../support/webhook-receiver.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const LOCAL = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });
// A busy machine takes long for an answer, and an attempt that times out is made again.
const settings = { webhooks: { ...LOCAL, firstRetryMs: 60, timeoutMs: 60_000 } };

/** How far the clock is ahead, in milliseconds. */
let ahead = 0;
let service: TestService;
let client: Client;
let receiver: Receiver;
beforeAll(async () => {
  service = await startTestService({ settings, now: () => addMillis(now(), ahead) });
});
afterAll(() => service.close());
// Each test has its own receiver, free of retries of the previous test.
beforeEach(async () => {
  client = await service.newOrg();
  receiver = await startReceiver();
});
afterEach(() => receiver.close());

/** Seals earlier events first: a webhook would get those of the last moment. */
const hook = async (more: object = {}) => {
  await untilSealed(service.ctx.pool, client.org.id, 30_000);
  return client.post('/v1/webhooks', { url: receiver.url, ...more });
};
const deliveries = async (id: string, query = {}) =>
  (await client.get(`/v1/webhooks/${id}/deliveries`, query)).body.data;
const make = (name: string) => client.post('/v1/volumes', { name });
const received = (count: number) =>
  until(
    () => Promise.resolve(receiver.messages),
    (messages) => messages.length >= count,
  );

describe('a webhook', () => {
  test('is created with a secret that is shown once, and not stored in clear', async () => {
    const { status, body } = await hook({ description: 'the archive', event_types: ['volume_created'] });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      org_id: client.org.id,
      url: receiver.url,
      description: 'the archive',
      event_types: ['volume_created'],
      status: 'active',
      disabled_reason: null,
      secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
    });
    const { secret, ...shown } = body;
    expect((await client.get(`/v1/webhooks/${body.id}`)).body).toEqual(shown);
    expect((await client.get('/v1/webhooks')).body.data).toEqual([shown]);
    for (const table of ['webhooks', 'events', 'webhook_deliveries', 'idempotency_keys']) {
      const { rows } = await service.ctx.pool.query(`select t::text as row from ${table} t`);
      expect(JSON.stringify(rows)).not.toContain(secret.slice(6));
    }
    expect(service.logs.join('')).not.toContain(secret.slice(6));
  });

  test('is sent later events in the form of the API, with a standard signature', async () => {
    await make('before');
    const { secret } = (await hook({ event_types: ['volume_created', 'volume_deletion_scheduled'] })).body;
    const { body: volume } = await make('data');
    await client.delete(`/v1/volumes/${volume.id}`);
    const messages = await received(2);
    const types = messages.map(({ body }) => body.type);
    expect(new Set(types)).toEqual(new Set(['volume_created', 'volume_deletion_scheduled']));
    expect(types).toHaveLength(2);
    for (const { headers, body, text } of messages) {
      expect(verify(secret, headers, text)).toBe(true);
      expect(verify(secret, headers, `${text} `)).toBe(false);
      expect(new Webhook(secret).verify(text, headers as Record<string, string>)).toEqual(body);
      expect(headers['content-type']).toBe('application/json; charset=utf-8');
      expect(headers['webhook-id']).toBe(body.data.id);
      expect(Math.abs(Number(headers['webhook-timestamp']) * 1000 - Date.now())).toBeLessThan(60_000);
      const event = (await client.get(`/v1/events/${body.data.id}`)).body;
      expect(body).toEqual({
        type: event.event_type,
        timestamp: event.timestamp,
        seq: body.seq,
        data: event,
      });
    }
    expect(messages[0]!.body.data.payload.name).toBe('data');
  });

  test('gets every type by default, and no excluded ones', async () => {
    const all = (await hook()).body.id;
    const most = (await hook({ event_types: ['!volume_created'] })).body.id;
    const { body: volume } = await make('data');
    await client.delete(`/v1/volumes/${volume.id}`);
    await until(
      async () => [...(await deliveries(all)), ...(await deliveries(most))],
      (rows) => rows.length >= 6 && rows.every(({ status }: any) => status === 'delivered'),
    );
    const typesOf = async (id: string) => (await deliveries(id)).map((row: any) => row.event_type).toSorted();
    // Each webhook also gets its own creation, and that of later ones.
    expect(await typesOf(all)).toEqual([
      'volume_created',
      'volume_deletion_scheduled',
      'webhook_created',
      'webhook_created',
    ]);
    expect(await typesOf(most)).toEqual(['volume_deletion_scheduled', 'webhook_created']);
  });

  test('can be changed, disabled and deleted, with an event each that omits the path of its URL', async () => {
    const { body } = await hook({ url: `${receiver.url}secret-path` });
    const path = `/v1/webhooks/${body.id}`;
    const changed = await client.patch(path, { event_types: ['volume_created'], description: null });
    expect(changed.body).toMatchObject({
      event_types: ['volume_created'],
      url: `${receiver.url}secret-path`,
    });
    expect((await client.patch(path, { status: 'disabled' })).body.status).toBe('disabled');
    await make('unseen');
    expect((await client.patch(path, { url: receiver.url, status: 'active' })).body.status).toBe('active');
    // Once active again, it gets the events that it missed.
    expect((await received(1))[0]!.body.data.payload.name).toBe('unseen');
    expect((await client.delete(path)).body).toEqual({ message: 'webhook deleted' });
    expect((await client.get(path)).status).toBe(404);
    expect((await client.delete(path)).status).toBe(404);
    const events = await client.get('/v1/events', { category: 'webhook' });
    expect(events.body.data.map(({ event_type }: any) => event_type)).toEqual([
      'webhook_deleted',
      'webhook_updated',
      'webhook_updated',
      'webhook_updated',
      'webhook_created',
    ]);
    expect(events.text).not.toContain('secret-path');
  });

  test('belongs to a limited number for each organization', async () => {
    let id = '';
    for (let count = 0; count < 20; count += 1) {
      const made = await client.post('/v1/webhooks', {
        url: receiver.url,
        event_types: ['webhook_disabled'],
      });
      expect(made.status).toBe(200);
      id = made.body.id;
    }
    const refused = await hook();
    expect([refused.status, refused.body.error.details]).toEqual([403, { limit: 20, used: 20 }]);
    await client.delete(`/v1/webhooks/${id}`);
    expect((await hook()).status).toBe(200);
    const { body } = await client.get('/v1/webhooks', { limit: 15 });
    const rest = await client.get('/v1/webhooks', { limit: 15, cursor: body.next_cursor });
    const ids = [...body.data, ...rest.body.data].map(({ id }: any) => id);
    expect(new Set(ids).size).toBe(20);
    expect(rest.body.next_cursor).toBe(null);
  });
});

describe('a delivery', () => {
  test('is retried until the receiver accepts it, and later ones do not wait', async () => {
    receiver.answer = ({ body }) =>
      body.data.payload.name === 'poison' && receiver.tries(body) < 4 ? 500 : 200;
    const { id } = (await hook({ event_types: ['volume_created'] })).body;
    // Both become due at once: on a busy machine all retries of the one could precede the other.
    await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
    await make('poison');
    await make('fine');
    await untilSealed(service.ctx.pool, client.org.id);
    await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
    const rows = await until(
      () => deliveries(id),
      (found) => found.length === 2 && found.every(({ status }: any) => status === 'delivered'),
      20_000,
    );
    const poison = rows.find(({ attempts }: any) => attempts > 1);
    expect(poison.attempts).toBe(4);
    expect(poison.results.map(({ response_status }: any) => response_status)).toEqual([500, 500, 500, 200]);
    expect(poison.results[0]).toMatchObject({ error: null, response_body: 'thanks' });
    const order = receiver.messages.map(({ body }) => body.data.payload.name);
    expect(order.indexOf('fine')).toBeLessThan(order.lastIndexOf('poison'));
    const gaps = receiver.messages
      .filter(({ body }) => body.data.payload.name === 'poison')
      .map(({ at }, index, all) => (index === 0 ? 0 : at - all[index - 1]!.at));
    expect(gaps[1]).toBeGreaterThanOrEqual(45);
    // Every attempt has the same id.
    expect(new Set(receiver.messages.map(({ headers }) => headers['webhook-id'])).size).toBe(2);
    expect((await client.get(`/v1/webhooks/${id}`)).body.failing_since).toBe(null);
  });

  test('reports why an answer is missing: no listener, a time-out, or an endless answer', async () => {
    const closed = await startReceiver();
    await closed.close();
    const { id } = (await hook({ url: closed.url })).body;
    const tried = async (path: string, by = client) => {
      await client.patch(`/v1/webhooks/${id}`, { url: path });
      return (await by.post(`/v1/webhooks/${id}/test`)).body;
    };
    const hurried = await startForTest({
      beside: service,
      sameEngine: true,
      worker: false,
      settings: { webhooks: { ...settings.webhooks, timeoutMs: 1_000 } },
    });
    const refused = (await client.post(`/v1/webhooks/${id}/test`)).body;
    expect([refused.status, refused.results[0].error]).toEqual([
      'failed',
      expect.stringContaining('ECONNREFUSED'),
    ]);
    receiver.answer = () => null;
    const late = await tried(receiver.url, makeClient(hurried.url, client));
    expect(late.results[0]).toMatchObject({ error: 'no answer within 1 s', response_status: null });
    expect(late.results[0].duration_ms).toBeGreaterThanOrEqual(990);
    receiver.answer = () => 'endless';
    const endless = await tried(receiver.url);
    expect(endless.results[0].response_status).toBe(200);
    expect(endless.results[0].response_body).toBe('x'.repeat(1_024));
    receiver.answer = () => 302;
    const redirected = await tried(receiver.url);
    expect(redirected.results[0]).toMatchObject({ response_status: 302 });
    expect(redirected.status).toBe('failed');
    expect(receiver.paths).not.toContain('/elsewhere');
  });

  test('is repeated on request, with a continued count of attempts', async () => {
    const { id } = (await hook({ event_types: ['volume_created'] })).body;
    await make('data');
    await received(1);
    const [delivery] = await until(
      () => deliveries(id, { status: 'delivered' }),
      (rows) => rows.length === 1,
    );
    const path = `/v1/webhooks/${id}/deliveries/${delivery.id}/redeliver`;
    expect((await client.post(path)).body).toMatchObject({ status: 'pending', id: delivery.id });
    await received(2);
    const [again] = await until(
      () => deliveries(id, { status: 'delivered' }),
      (rows) => rows.length === 1,
    );
    expect([again.attempts, again.results.length]).toEqual([2, 2]);
    const [first, second] = receiver.messages;
    expect(second!.text).toBe(first!.text);
    await client.patch(`/v1/webhooks/${id}`, { status: 'disabled' });
    const refused = await client.post(path);
    expect([refused.status, refused.body.error.code]).toEqual([409, 'invalid_state_transition']);
    const types = (await client.get('/v1/events', { category: 'webhook' })).body.data;
    expect(types.map(({ event_type }: any) => event_type)).toContain('webhook_redelivery_requested');
  });

  test('for a test is sent at once, also to a disabled webhook, and only once', async () => {
    const { id, secret } = (await hook({ event_types: ['volume_created'] })).body;
    const tested = (await client.post(`/v1/webhooks/${id}/test`)).body;
    expect(tested).toMatchObject({
      status: 'delivered',
      event_type: 'webhook_tested',
      seq: null,
      attempts: 1,
    });
    expect(verify(secret, receiver.messages[0]!.headers, receiver.messages[0]!.text)).toBe(true);
    await client.patch(`/v1/webhooks/${id}`, { status: 'disabled', event_types: [] });
    expect((await client.post(`/v1/webhooks/${id}/test`)).body.status).toBe('delivered');
    await client.patch(`/v1/webhooks/${id}`, { status: 'active' });
    await make('data');
    await until(
      () => deliveries(id),
      (rows) => rows.some(({ event_type }: any) => event_type === 'volume_created'),
    );
    const tests = receiver.messages.filter(({ body }) => body.type === 'webhook_tested');
    expect(tests).toHaveLength(2);
  });
});

test('a rotated secret signs beside the previous one until the overlap ends', async () => {
  const { id, secret: first } = (await hook({ event_types: [] })).body;
  const rotated = (await client.post(`/v1/webhooks/${id}/rotate-secret`, { overlap_secs: 600 })).body;
  expect(rotated.secret).not.toBe(first);
  expect(Date.parse(rotated.previous_secret_until) - Date.parse(rotated.created_at)).toBeLessThan(1_200_000);
  await client.post(`/v1/webhooks/${id}/test`);
  const both = receiver.messages.find(({ body: sent }) => sent.type === 'webhook_tested')!;
  expect([verify(first, both.headers, both.text), verify(rotated.secret, both.headers, both.text)]).toEqual([
    true,
    true,
  ]);
  ahead += 600_000;
  receiver.reset();
  await client.post(`/v1/webhooks/${id}/test`);
  const one = receiver.messages.find(({ body: sent }) => sent.type === 'webhook_tested')!;
  expect([verify(first, one.headers, one.text), verify(rotated.secret, one.headers, one.text)]).toEqual([
    false,
    true,
  ]);
  expect((await client.get(`/v1/webhooks/${id}`)).body.previous_secret_until).toBe(null);
  const { body } = await client.post(`/v1/webhooks/${id}/rotate-secret`, { overlap_secs: 0 });
  expect(body.previous_secret_until).toBe(null);
});

test("after the loss of a new secret another rotation keeps the receiver's secret valid", async () => {
  const { id, secret } = (await hook({ event_types: [] })).body;
  const made = [secret];
  for (let count = 0; count < 3; count += 1) {
    made.push((await client.post(`/v1/webhooks/${id}/rotate-secret`, {})).body.secret);
  }
  const signs = async () => {
    receiver.reset();
    await client.post(`/v1/webhooks/${id}/test`);
    const { headers, text } = receiver.messages.find(({ body: sent }) => sent.type === 'webhook_tested')!;
    return made.map((each) => verify(each, headers, text));
  };
  expect(await signs()).toEqual([true, true, true, true]);
  ahead += 2 * 86_400_000;
  expect(await signs()).toEqual([false, false, false, true]);
  await sweepDeliveries(service.ctx, new AbortController().signal);
  const { rows } = await service.ctx.pool.query(
    'select old_sealed, old_key_ids, old_until from webhooks where org_id = $1 and id = $2',
    [client.org.id, id],
  );
  expect(rows).toEqual([{ old_sealed: [], old_key_ids: [], old_until: null }]);
  made.push((await client.post(`/v1/webhooks/${id}/rotate-secret`, { overlap_secs: 0 })).body.secret);
  expect(await signs()).toEqual([false, false, false, false, true]);
});

test('a webhook with many deliveries is deleted at once, and its deliveries are removed later', async () => {
  const { id } = (await hook({ event_types: ['webhook_disabled'] })).body;
  const { pool } = service.ctx;
  await pool.query(
    `insert into webhook_deliveries
       (org_id, webhook_id, id, event_id, event_type, status, attempts, expires_at, created_at, settled_at)
     select $1, $2, gen_random_uuid(), gen_random_uuid(), 'volume_created', 'delivered', 1, now(), now(), now()
     from generate_series(1, 4100)`,
    [client.org.id, id],
  );
  const left = async () => {
    const { rows } = await pool.query(
      `select (select count(*) from webhooks where id = $1) as webhooks,
         (select count(*) from webhook_deliveries where webhook_id = $1) as deliveries`,
      [id],
    );
    return rows[0];
  };
  const sweep = () => sweepDeliveries(service.ctx, new AbortController().signal);
  // Another transaction has one of them locked.
  await inTransaction(pool, async (tx) => {
    await tx.query('select from webhook_deliveries where webhook_id = $1 limit 1 for update', [id]);
    expect((await client.delete(`/v1/webhooks/${id}`)).status).toBe(200);
    await sweep();
  });
  const requests = [
    client.get(`/v1/webhooks/${id}`),
    client.delete(`/v1/webhooks/${id}`),
    client.patch(`/v1/webhooks/${id}`, { status: 'active' }),
    client.post(`/v1/webhooks/${id}/test`),
    client.post(`/v1/webhooks/${id}/rotate-secret`, {}),
    client.get(`/v1/webhooks/${id}/deliveries`),
  ];
  expect((await Promise.all(requests)).map(({ status }) => status)).toEqual(Array(6).fill(404));
  expect((await client.get('/v1/webhooks')).body.data).toEqual([]);
  const { rows } = await pool.query('select url, sealed, old_sealed from webhooks where id = $1', [id]);
  expect(rows).toEqual([{ url: '', sealed: null, old_sealed: [] }]);
  expect(await left()).toEqual({ webhooks: 1, deliveries: 1 });
  await sweep();
  expect(await left()).toEqual({ webhooks: 0, deliveries: 0 });
});

test('an unknown field is refused, and the answer names the creator', async () => {
  const refused = await hook({ event_type: ['volume_created'] });
  expect([refused.status, refused.body.error.code]).toEqual([400, 'invalid_request']);
  const { body } = await hook();
  expect(body.created_by).toEqual({ kind: 'api_key', api_key_id: client.keyId, name: 'test key' });
  expect((await client.patch(`/v1/webhooks/${body.id}`, { state: 'disabled' })).status).toBe(400);
  expect((await client.post(`/v1/webhooks/${body.id}/rotate-secret`, { overlap: 0 })).status).toBe(400);
});
