import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NO_METERS } from '../../../src/lib/meters.js';
import { webhookSettings } from '../../../src/settings.js';
import { openTelemetry, type Telemetry } from '../../../src/telemetry/open-telemetry.js';
import type { Client } from '../../support/client.js';
import { startCollector, type Collector, type ReceivedSpan } from '../../support/collector.js';
import { untilSealed } from '../../support/event-log.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { startReceiver, type Receiver } from '../../support/webhook-receiver.js';

const webhooks = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });
const CALLER = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe.each(['http/protobuf', 'http/json'] as const)('traces and logs by %s', (otlpProtocol) => {
  let collector: Collector;
  let telemetry: Telemetry;
  let service: TestService;
  let client: Client;
  let receiver: Receiver;
  beforeAll(async () => {
    collector = await startCollector();
    const more = { otlpProtocol, otelServiceName: 'under-test', otelResourceAttributes: 'team=a%20b' };
    telemetry = await openTelemetry(collector.options({ ...more, otlpHeaders: 'x-token=t1' }), NO_METERS);
    service = await startTestService({ telemetry, settings: { webhooks } });
    client = await service.newOrg();
    receiver = await startReceiver();
  });
  afterAll(async () => {
    await service.close();
    await telemetry.close();
    await receiver.close();
    await collector.close();
  });

  const spansOf = (traceId: string, wanted: (spans: ReceivedSpan[]) => boolean) =>
    until(
      () => Promise.resolve(collector.spans.filter((span) => span.traceId === traceId)),
      (spans) => wanted(spans),
    );
  const has = (name: string) => (spans: ReceivedSpan[]) => spans.some((span) => span.name === name);

  test('a create that waits is one trace, from the caller through the runtime to the webhook', async () => {
    await untilSealed(service.ctx.pool, client.org.id, 30_000);
    await client.post('/v1/webhooks', {
      url: receiver.url,
      event_types: ['sandbox_created', 'sandbox_started'],
    });
    const { body, headers } = await client.request('POST', '/v1/sandboxes', {
      body: smallRequest('traced'),
      query: { start: true, wait_for: 'running' },
      headers: { traceparent: CALLER, tracestate: 'vendor=1, other@x=2' },
    });
    const [, traceId, callerSpan] = CALLER.split('-') as [string, string, string];
    await until(
      () => Promise.resolve(receiver.messages),
      (messages) => messages.length >= 2,
    );
    const route = 'POST /v1/sandboxes';
    const spans = await spansOf(
      traceId,
      (all) =>
        has(route)(all) && has('runtime start')(all) && all.filter(({ name }) => name === 'POST').length >= 2,
    );
    const server = spans.find(({ name }) => name === route)!;
    expect(server).toMatchObject({
      kind: 2,
      status: 0,
      parentSpanId: callerSpan,
      traceState: 'vendor=1,other@x=2',
    });
    expect(server.attributes).toEqual({
      'http.request.method': 'POST',
      'http.response.status_code': 200,
      'http.route': '/v1/sandboxes',
      'url.scheme': 'http',
      'network.protocol.version': '1.1',
      'sandkeep.request_id': headers.get('x-request-id'),
    });
    expect(server.resource).toMatchObject({ 'service.name': 'under-test', team: 'a b' });
    const transactions = spans.filter(({ name }) => name === 'postgresql transaction');
    expect(transactions.length).toBeGreaterThan(0);
    for (const span of transactions) {
      expect(span).toMatchObject({ kind: 3, parentSpanId: server.spanId });
      expect(span.attributes).toEqual({ 'db.system.name': 'postgresql' });
      expect(span.millis).toBeLessThanOrEqual(server.millis);
    }
    expect(spans.find(({ name }) => name === 'runtime start')).toMatchObject({
      kind: 3,
      parentSpanId: server.spanId,
      attributes: { 'sandkeep.runtime': 'simulated', 'sandkeep.sandbox_id': body.id },
    });
    const deliveries = spans.filter(({ name }) => name === 'POST');
    for (const message of receiver.messages) {
      const [version, trace, span, flags] = String(message.headers['traceparent']).split('-');
      expect([version, trace, flags]).toEqual(['00', traceId, '01']);
      const delivery = deliveries.find(({ spanId }) => spanId === span);
      expect(delivery).toMatchObject({ kind: 3, status: 0, parentSpanId: server.spanId });
      expect(delivery!.attributes).toMatchObject({
        'http.response.status_code': 200,
        'sandkeep.event_type': message.body.type,
      });
      // The state of the caller is for its own vendor.
      expect(message.headers['tracestate']).toBeUndefined();
    }
    const stopped = await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    await untilStatus(client, body.id, 'stopped');
    const line = service.logs
      .map((text) => JSON.parse(text))
      .find((each) => each.reqId === stopped.headers.get('x-request-id') && each.msg === 'request answered');
    expect(line.traceId).not.toBe(traceId);
    const stops = await spansOf(line.traceId, has('runtime stop'));
    expect(stops.find(({ kind }) => kind === 2)!.attributes['sandkeep.sandbox_id']).toBe(body.id);
  });

  test('refusals and paths without a route have their error, and nothing that a caller chose', async () => {
    const missing = await client.get('/v1/volumes/018f0000-0000-7000-8000-000000000000');
    const nowhere = await client.request('GET', '/v1/no/canary?canary=1', {
      headers: { traceparent: CALLER },
    });
    const spanOf = (id: string | null) =>
      until(
        () =>
          Promise.resolve(collector.spans.find(({ attributes }) => attributes['sandkeep.request_id'] === id)),
        (span) => span !== undefined,
      );
    const refused = (await spanOf(missing.headers.get('x-request-id')))!;
    expect(refused).toMatchObject({ name: 'GET /v1/volumes/:id', status: 0 });
    expect(refused.attributes).toMatchObject({
      'error.type': 'sandbox_not_found',
      'http.response.status_code': 404,
    });
    const unknown = (await spanOf(nowhere.headers.get('x-request-id')))!;
    expect(unknown.name).toBe('GET');
    expect(unknown.attributes).not.toHaveProperty(['http.route']);
    expect(JSON.stringify([refused, unknown])).not.toMatch(/canary|018f0000|Bearer/);
  });

  test('the ids are in each log line of the request, here and at the collector', async () => {
    const { headers } = await client.request('GET', '/v1/sandboxes', { headers: { traceparent: CALLER } });
    const id = headers.get('x-request-id');
    const lines = service.logs.map((text) => JSON.parse(text)).filter(({ reqId }) => reqId === id);
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) expect(line.traceId).toBe(CALLER.split('-')[1]);
    const logs = await until(
      () => Promise.resolve(collector.logs.filter(({ attributes }) => attributes['reqId'] === id)),
      (found) => found.length > 0,
    );
    expect(logs[0]).toMatchObject({
      body: 'request answered',
      severity: 'INFO',
      traceId: CALLER.split('-')[1],
      spanId: lines[0].spanId,
      attributes: { route: '/v1/sandboxes', status: 200 },
    });
    expect(collector.texts.some((text) => text.includes('"x-token":"t1"'))).toBe(true);
  });
});

test('a request that another process serves is one trace in both', async () => {
  const collector = await startCollector();
  const open = async (name: string) => openTelemetry(collector.options({ otelServiceName: name }), NO_METERS);
  const [first, second] = [await open('front'), await open('engine')];
  const engine = await startForTest({ telemetry: second });
  const front = await startForTest({ telemetry: first, beside: engine });
  const client = await engine.newOrg();
  const made = await client.post('/v1/sandboxes', smallRequest('far'), { start: true, wait_for: 'running' });
  const answer = await fetch(`${front.url}/v1/sandboxes/${made.body.id}/exec`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${client.key}`,
      'content-type': 'application/json',
      traceparent: CALLER,
    },
    body: JSON.stringify({ command: ['true'] }),
  });
  await answer.text();
  const id = answer.headers.get('x-request-id');
  const both = await until(
    () =>
      Promise.resolve(collector.spans.filter(({ attributes }) => attributes['sandkeep.request_id'] === id)),
    (spans) => spans.length === 2,
  );
  const [outer, inner] = ['front', 'engine'].map((name) =>
    both.find(({ resource }) => resource['service.name'] === name)!,
  ) as [ReceivedSpan, ReceivedSpan];
  expect([outer.traceId, inner.traceId]).toEqual([CALLER.split('-')[1], CALLER.split('-')[1]]);
  expect(inner.parentSpanId).toBe(outer.spanId);
  await Promise.all([first.close(), second.close()]);
  await collector.close();
});
