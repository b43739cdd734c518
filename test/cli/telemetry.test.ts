import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { expectRefused, NO_DOCKER, PROGRAM, run, start, urlOf } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { startCollector, type Collector } from '../support/collector.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let collector: Collector;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  collector = await startCollector();
});
afterAll(async () => {
  await service.close();
  await collector.close();
});

async function serve(env: Record<string, string>) {
  const args = ['serve', '--port', '0', '--runtime', 'simulated', '--json', ...NO_DOCKER];
  const files = ['--data-dir', service.directory];
  const { child, ended } = start([...PROGRAM, ...args, ...files], {
    env: { DATABASE_URL: urlOf(service.database), ...env },
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const { address } = JSON.parse(line) as { address: string };
  const ask = async () => {
    const headers = { authorization: `Bearer ${client.key}` };
    const answer = await fetch(`${address}/v1/sandboxes`, { headers });
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
    return answer.headers.get('x-request-id');
  };
  const stop = async () => {
    const began = performance.now();
    child.kill('SIGTERM');
    const { code, err } = await ended;
    expect(code).toBe(0);
    return { millis: performance.now() - began, err };
  };
  return { ask, stop };
}

test('the standard variables turn the export on, and the last lines are sent at the stop', async () => {
  const sentOf = async () => {
    const { ask, stop } = await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
      OTEL_SERVICE_NAME: 'by-variables',
      OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    });
    const id = await ask();
    const { err } = await stop();
    const span = collector.spans.find(({ attributes }) => attributes['sandkeep.request_id'] === id);
    return { err, span, log: collector.logs.find(({ attributes }) => attributes['reqId'] === id) };
  };
  // The flush at the stop has three seconds. A busy machine may need more.
  const { err, span, log } = await until(sentOf, (sent) => sent.span !== undefined && sent.log !== undefined);
  expect(span!.resource['service.name']).toBe('by-variables');
  expect(log!.traceId).toBe(span!.traceId);
  expect(err).toContain(`"traceId":"${span!.traceId}"`);
});

test('a collector that hangs does not hold the stop', async () => {
  collector.answer = () => null;
  const { ask, stop } = await serve({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
  await ask();
  // The flush has three seconds; the rest is for a busy machine.
  expect((await stop()).millis).toBeLessThan(60_000);
  collector.answer = () => 200;
});

test('OTEL_SDK_DISABLED turns it off, and a service without a collector loads none of it', async () => {
  const before = collector.texts.length;
  const { ask, stop } = await serve({
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_SDK_DISABLED: 'true',
  });
  await ask();
  expect((await stop()).err).not.toContain('traceId');
  expect(collector.texts.length).toBe(before);
  const script = `
    await import('./dist/src/service/start.js'); await import('./dist/src/app.js');
    const { default: module } = await import('node:module');
    console.log(Object.keys(module._cache).filter((file) => file.includes('@opentelemetry')).length);`;
  const { code, out } = await start([process.execPath, '--input-type=module', '-e', script], {
    cwd: PACKAGE_ROOT,
  }).ended;
  expect([code, out]).toEqual([0, '0\n']);
});

test.each([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', '"http/protobuf", "http/json"'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4317', 'http://127.0.0.1:4318'],
  ['OTEL_TRACES_SAMPLER_ARG', '1.5', 'from 0 to 1'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'secret-without-a-name', 'name=value'],
])('%s=%s is refused with the accepted form', async (variable, value, sentence) => {
  const ended = await run(['serve'], { env: { [variable]: value } });
  expectRefused(ended, sentence);
  expect(ended.err).not.toContain('secret-without');
});
