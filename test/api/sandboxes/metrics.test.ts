import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import { makeClient, type Client } from '../../support/client.js';
import { allEvents, openEvents } from '../../support/event-stream.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const running = { start: true, wait_for: 'running' };
const SAMPLE = {
  timestamp: expect.stringMatching(/Z$/),
  cpu_percent: expect.any(Number),
  memory_bytes: null,
  host_memory_bytes: null,
  disk_bytes: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_rx_bytes: null,
  net_tx_bytes: null,
  processes: null,
};

describe('the use of a sandbox', () => {
  let service: TestService;
  let api: TestService;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService();
    api = await startTestService({ beside: service, sameEngine: true, worker: false });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await api.close();
    await service.close();
  });

  const create = async (name: string, runtime = {}) =>
    (await client.post('/v1/sandboxes', smallRequest(name, { runtime }), running)).body.id as string;
  const metricsOf = async (id: string) => (await client.get(`/v1/sandboxes/${id}/metrics`)).body;
  const sampled = async (id: string) =>
    until(
      () => metricsOf(id),
      ({ history }) => history?.length > 0,
    );

  test('is what the runtime measures, and null where it measures nothing', async () => {
    const id = await create('used');
    (service.runtime as SimulatedRuntime).work(id, 3_600_000_000);
    const body = await until(
      () => metricsOf(id),
      ({ current }) => current?.cpu_percent > 0,
    );
    expect(body).toMatchObject({
      sandbox_id: id,
      sample_interval_ms: 1000,
      unavailable_reason: null,
      history_interval_ms: 30_000,
      cpu_limit_percent: 100,
      disk_limit_bytes: null,
    });
    expect(body.current).toEqual(SAMPLE);
    expect((await sampled(id)).history[0]).toEqual(SAMPLE);
    expect((await client.get('/v1/sandboxes/by-name/used/metrics')).body.sandbox_id).toBe(id);
  });

  test('has the limits of the specification', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      smallRequest('sized', { resources: { vcpus: 2, memory_mib: 128, disk_size_mib: 512 } }),
    );
    expect(await metricsOf(body.id)).toMatchObject({
      cpu_limit_percent: 200,
      memory_limit_bytes: 128 * 1024 ** 2,
      disk_limit_bytes: 512 * 1024 ** 2,
    });
  });

  test('is sampled no more often than the specification says, and not at all where it says so', async () => {
    const rarely = await create('rarely', { metrics_sample_interval_ms: 3_600_000 });
    const first = await until(
      () => metricsOf(rarely),
      ({ current }) => current !== null,
    );
    expect(first.sample_interval_ms).toBe(3_600_000);
    expect((await metricsOf(rarely)).current).toEqual(first.current);
    const off = [
      await create('off', { disable_metrics_sample: true }),
      await create('never', { metrics_sample_interval_ms: null }),
    ];
    for (const id of off) {
      expect(await metricsOf(id)).toMatchObject({
        sample_interval_ms: null,
        unavailable_reason: 'disabled',
        current: null,
        history: [],
      });
    }
    const specs = await Promise.all(off.map((id) => client.get(`/v1/sandboxes/${id}`)));
    expect(specs.map(({ body }) => [body.spec.runtime, body.warnings])).toMatchObject([
      [{ metrics_sample_interval_ms: 1000, disable_metrics_sample: true }, undefined],
      [{ metrics_sample_interval_ms: null, disable_metrics_sample: false }, undefined],
    ]);
    for (const metrics_sample_interval_ms of [-1, '5', 1.5]) {
      const { status } = await client.post(
        '/v1/sandboxes',
        smallRequest('wrong', { runtime: { metrics_sample_interval_ms } }),
      );
      expect(status).toBe(400);
    }
  });

  test('ends with the run, and the points of the last hour stay', async () => {
    const id = await create('ends');
    const { history } = await sampled(id);
    const { events } = await openEvents(client, `/v1/sandboxes/${id}/metrics/stream`);
    expect((await events.next()).value).toEqual({ comment: 'following' });
    expect((await events.next()).value).toMatchObject({ event: 'sample', data: SAMPLE });
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    expect((await allEvents(events)).at(-1)).toEqual({ event: 'end', data: {} });
    await untilStatus(client, id, 'stopped');
    const body = await metricsOf(id);
    expect(body).toMatchObject({ current: null, unavailable_reason: 'not_running' });
    expect(body.history[0]).toEqual(history[0]);
  });

  test('is answered by a process that does not sample, from the one that does', async () => {
    const id = await create('elsewhere');
    const { history } = await sampled(id);
    expect(api.ctx.use.isSampling).toBe(false);
    const other = makeClient(api.url, client);
    const { status, body } = await other.get(`/v1/sandboxes/${id}/metrics`);
    expect([status, body.history[0]]).toEqual([200, history[0]]);
    const { events } = await openEvents(other, `/v1/sandboxes/${id}/metrics/stream`);
    await events.next();
    expect((await events.next()).value).toMatchObject({ event: 'sample', data: SAMPLE });
    await events.return(undefined);
  });
});
