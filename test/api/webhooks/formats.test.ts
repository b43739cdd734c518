import { HTTP, type CloudEvent } from 'cloudevents';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { webhookSettings } from '../../../src/settings.js';
import type { Client } from '../../support/client.js';
import { untilSealed, wholeLog } from '../../support/event-log.js';
import { ocsfFaults } from '../../support/ocsf-1-8.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { startReceiver, verify, type Receiver } from '../../support/webhook-receiver.js';

const LOCAL = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });

let service: TestService;
let client: Client;
let receiver: Receiver;
beforeAll(async () => {
  service = await startTestService({ settings: { webhooks: { ...LOCAL, firstRetryMs: 60 } } });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
  receiver = await startReceiver();
});
afterEach(() => receiver.close());

const hook = async (more: object = {}) => {
  await untilSealed(service.ctx.pool, client.org.id, 30_000);
  return (await client.post('/v1/webhooks', { url: receiver.url, event_types: ['volume_created'], ...more }))
    .body;
};
const received = (count: number) =>
  until(
    () => Promise.resolve(receiver.messages),
    (messages) => messages.length >= count,
  );
const entryOf = async (id: string) =>
  (await wholeLog(service.ctx.pool, client.org.id)).find(({ event_id }) => event_id === id)!;

test('CloudEvents are parsed by the library of the specification, and have a standard signature', async () => {
  const { secret, format } = await hook({ format: 'cloudevents' });
  expect(format).toBe('cloudevents');
  const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
  const [message] = await received(1);
  const { headers, text, body } = message!;
  expect(headers['content-type']).toBe('application/cloudevents+json; charset=utf-8');
  expect(verify(secret, headers, text)).toBe(true);
  expect(headers['webhook-id']).toBe(body.id);

  const parsed = HTTP.toEvent({ headers, body: text }) as CloudEvent<Record<string, unknown>>;
  expect(parsed.validate()).toBe(true);
  const event = (await client.get(`/v1/events/${parsed.id}`)).body;
  const { seq } = await entryOf(parsed.id);
  expect(parsed.toJSON()).toEqual({
    specversion: '1.0',
    id: event.id,
    source: `urn:uuid:${client.org.id}`,
    type: 'dev.sandkeep.volume_created',
    subject: `volume/${volume.id}`,
    time: expect.any(String),
    datacontenttype: 'application/json',
    dataschema: expect.stringMatching(/^https:.*EventResponse$/),
    sequence: String(seq).padStart(16, '0'),
    data: event,
  });
  expect(body.time).toBe(event.timestamp);
});

test('OCSF has the place of the event in the log, and a test has none', async () => {
  const { id, secret } = await hook({ format: 'ocsf' });
  await client.post('/v1/volumes', { name: 'data' });
  const [message] = await received(1);
  const { headers, text, body } = message!;
  expect(verify(secret, headers, text)).toBe(true);
  expect(headers['content-type']).toBe('application/json; charset=utf-8');
  expect(ocsfFaults(body)).toEqual([]);
  const { seq, link } = await entryOf(body.metadata.uid);
  expect(body).toMatchObject({
    class_uid: 3004,
    activity_name: 'Create',
    entity: { name: 'data', type: 'Volume' },
    unmapped: {
      log: { seq, link: link.toString('hex'), previous_link: expect.stringMatching(/^[0-9a-f]{64}$/) },
    },
  });

  await client.post(`/v1/webhooks/${id}/test`, {});
  const tested = (await received(2))[1]!.body;
  expect(ocsfFaults(tested)).toEqual([]);
  expect(tested).toMatchObject({ class_uid: 6003, activity_name: 'Test', unmapped: { log: null } });
});

test('the default form is unchanged, also byte by byte', async () => {
  const { format } = await hook();
  expect(format).toBe('sandkeep');
  await client.post('/v1/volumes', { name: 'data' });
  const [message] = await received(1);
  const { text, body } = message!;
  const data = (await client.get(`/v1/events/${body.data.id}`)).body;
  const { seq } = await entryOf(data.id);
  expect(text).toBe(JSON.stringify({ type: 'volume_created', timestamp: data.timestamp, seq, data }));
});

test('a retry and a redelivery have the present form of the webhook, and the change is an audit event', async () => {
  const { id } = await hook();
  const isCloudEvent = ({ body }: { body: any }) => body.specversion === '1.0';
  // An attempt can begin before the change and end after it.
  receiver.answer = (message) => (isCloudEvent(message) ? 200 : 422);
  await client.post('/v1/volumes', { name: 'data' });
  await received(1);
  const { body: changed } = await client.patch(`/v1/webhooks/${id}`, { format: 'cloudevents' });
  expect(changed.format).toBe('cloudevents');
  const messages = await until(
    () => Promise.resolve(receiver.messages),
    (all) => all.some(isCloudEvent),
  );
  const retried = messages.find(isCloudEvent)!;
  expect(retried.body.id).toBe(messages[0]!.body.data.id);

  // A redelivery that is asked for while an attempt is in progress is that attempt.
  const { body: deliveries } = await until(
    () => client.get(`/v1/webhooks/${id}/deliveries`),
    ({ body }) => body.data[0].status === 'delivered',
  );
  const [delivery] = deliveries.data;
  await client.patch(`/v1/webhooks/${id}`, { format: 'ocsf' });
  receiver.answer = () => 200;
  await client.post(`/v1/webhooks/${id}/deliveries/${delivery.id}/redeliver`, {});
  const again = await until(
    () => Promise.resolve(receiver.messages),
    (all) => all.some(({ body }) => body.class_uid === 3004),
  );
  expect(again.at(-1)!.body.metadata.uid).toBe(retried.body.id);

  const updates = (await client.get('/v1/events', { event_type: 'webhook_updated' })).body.data;
  expect(updates.map(({ payload }: any) => [payload.before.format, payload.after.format])).toEqual([
    ['cloudevents', 'ocsf'],
    ['sandkeep', 'cloudevents'],
  ]);
});

test('an unknown form is refused, with the known ones', async () => {
  const { id } = await hook();
  for (const answer of [
    await client.post('/v1/webhooks', { url: receiver.url, format: 'xml' }),
    await client.patch(`/v1/webhooks/${id}`, { format: 'xml' }),
  ]) {
    expect([answer.status, answer.body.error.code]).toEqual([400, 'invalid_request']);
    expect(answer.body.error.message).toMatch(/format.*sandkeep.*cloudevents.*ocsf/);
  }
});
