import { createServer, type AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import type { Meters } from '../../../src/lib/meters.js';
import { NO_METERS } from '../../../src/lib/meters.js';
import { openTelemetry } from '../../../src/telemetry/open-telemetry.js';
import { startCollector } from '../../support/collector.js';
import { until } from '../../support/polling.js';
import { startForTest } from '../../support/service.js';

function counting(): { meters: Meters; counts: Record<string, number> } {
  const counts: Record<string, number> = {};
  const telemetryExported: Meters['telemetryExported'] = (signal, outcome, items) => {
    counts[`${signal} ${outcome}`] = (counts[`${signal} ${outcome}`] ?? 0) + items;
  };
  return { meters: { ...NO_METERS, telemetryExported }, counts };
}

const total = (counts: Record<string, number>, outcome: string) =>
  (counts[`spans ${outcome}`] ?? 0) + (counts[`logs ${outcome}`] ?? 0);

test.each([
  ['hangs', null],
  ['answers 500', 500],
  ['answers 429', 429],
])('a collector that %s costs no request, and a bounded time at the stop', async (_, status) => {
  const collector = await startCollector();
  onTestFinished(() => collector.close());
  const { meters, counts } = counting();
  const telemetry = await openTelemetry(collector.options(), meters);
  const changes: string[] = [];
  telemetry.onChange((signal, error) => changes.push(`${signal}: ${error?.message ?? 'again'}`));
  const service = await startForTest({ telemetry });
  const client = await service.newOrg();
  let asked = 0;
  collector.answer = () => {
    asked += 1;
    return status;
  };
  const answers = await Promise.all(Array.from({ length: 20 }, () => client.get('/v1/sandboxes')));
  expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]));
  await until(
    () => Promise.resolve(asked),
    (times) => times > 0,
  );
  // Beyond the room of the queue.
  if (status === null) {
    for (let index = 0; index < 6_000; index += 1) service.ctx.log.info('a line');
    expect(counts['logs dropped']).toBeGreaterThan(1_000);
  }
  if (status === 500) {
    await until(
      () => Promise.resolve(changes.length),
      (count) => count === 2,
    );
    expect(total(counts, 'failed')).toBeGreaterThan(0);
    collector.answer = () => 200;
    await client.get('/v1/sandboxes');
    await until(
      () => Promise.resolve(changes),
      (all) => all.includes('spans: again') && all.includes('logs: again'),
    );
  }
  const began = performance.now();
  await telemetry.close();
  // The flush has three seconds, and the rest is for a busy machine.
  expect(performance.now() - began).toBeLessThan(60_000);
  expect((await client.get('/v1/sandboxes')).status).toBe(200);
});

test('a collector that refuses connections, or is no HTTP server, is reported once and costs no request', async () => {
  const garbage = createServer(
    (socket) =>
      void socket
        .on('error', () => undefined)
        .resume()
        .end('\u0000\u0001 not http'),
  );
  await new Promise<void>((resolve) => garbage.listen(0, '127.0.0.1', resolve));
  const { port } = garbage.address() as AddressInfo;
  const { meters, counts } = counting();
  const collector = await startCollector();
  await collector.close();
  const telemetry = await openTelemetry(
    collector.options({ otlpLogsEndpoint: `http://127.0.0.1:${port}/v1/logs` }),
    meters,
  );
  const changes: string[] = [];
  telemetry.onChange((signal) => changes.push(signal));
  const service = await startForTest({ telemetry });
  const client = await service.newOrg();
  expect((await client.get('/v1/sandboxes')).status).toBe(200);
  await telemetry.close();
  expect((await client.get('/v1/sandboxes')).status).toBe(200);
  expect(total(counts, 'exported')).toBe(0);
  expect(changes.length).toBeLessThanOrEqual(2);
  await new Promise((resolve) => garbage.close(resolve));
});
