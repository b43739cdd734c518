import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openMetrics } from '../../../src/metrics/open-metrics.js';
import { serveMetrics } from '../../../src/metrics/serve.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Client } from '../../support/client.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

type Series = Map<string, number>;

/** The series of a text, as `name{labels}`. Fails for a line that is neither a comment nor a series. */
function parse(text: string): Series {
  const series: Series = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const [, name, value] = /^([a-z_]\w*(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
    expect(name, line).toBeDefined();
    expect(series.has(name!), line).toBe(false);
    series.set(name!, Number(value));
  }
  return series;
}

function sumOf(series: Series, begin: string): number {
  return [...series].reduce((sum, [name, value]) => (name.startsWith(begin) ? sum + value : sum), 0);
}

describe.each([false, true])('metrics, by organization: %s', (byOrg) => {
  let service: TestService;
  let client: Client;
  let metrics: Awaited<ReturnType<typeof serveMetrics>>;
  beforeAll(async () => {
    const opened = await openMetrics({ byOrg, freshMs: 0 });
    service = await startTestService({ metrics: opened });
    metrics = await serveMetrics(opened, service.ctx, { host: '127.0.0.1', port: 0 });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await metrics.close();
    await service.close();
  });

  const scrape = async () => {
    const answer = await fetch(`${metrics.url}/metrics`);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([
      200,
      'text/plain; version=0.0.4; charset=utf-8',
    ]);
    return parse(await answer.text());
  };

  test('the state is that of the database', async () => {
    const before = await scrape();
    const { body } = await client.post('/v1/sandboxes', smallRequest('runs'), {
      start: true,
      wait_for: 'running',
    });
    await client.post('/v1/sandboxes', smallRequest('rests'));
    await service.newOrg();
    const series = await scrape();
    const more = byOrg ? `,org="${client.org.slug}"` : '';
    expect(series.get(`sandkeep_sandboxes{status="running"${more}}`)).toBe(1);
    expect(series.get(`sandkeep_sandboxes{status="created"${more}}`)).toBe(1);
    expect(series.get('sandkeep_run_start_duration_seconds_count')).toBe(1);
    expect(series.get('sandkeep_database_up')).toBe(1);
    expect(series.get('sandkeep_placement_waiting_runs')).toBe(0);
    expect(sumOf(series, 'sandkeep_worker_used{')).toBeGreaterThan(sumOf(before, 'sandkeep_worker_used{'));
    const lease = [...series].find(([name]) => name.startsWith('sandkeep_worker_lease_remaining_seconds'));
    expect(lease![1]).toBeGreaterThan(0);
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    await untilStatus(client, body.id, 'stopped');
    const after = await scrape();
    expect(after.get('sandkeep_run_stop_duration_seconds_count')).toBe(1);
    expect(sumOf(after, 'sandkeep_run_ends_total{')).toBe(1);
    expect(after.get('sandkeep_runtime_call_duration_seconds_count{call="stop",outcome="done"}')).toBe(1);
    expect(after.get(`sandkeep_sandboxes{status="stopped"${more}}`)).toBe(1);
    // A status that nothing has any more.
    expect(after.get(`sandkeep_sandboxes{status="running"${more}}`)).toBe(byOrg ? undefined : 0);
  });

  test('requests count by route, status and error, also when they are refused or the client leaves', async () => {
    const count = (series: Series, labels: string) =>
      series.get(`http_server_request_duration_seconds_count{${labels}}`) ?? 0;
    const before = await scrape();
    await client.get('/v1/volumes/018f0000-0000-7000-8000-000000000000');
    await client.get('/v1/no/such/path');
    await fetch(`${service.url}/v1/volumes`);
    const leaving = new AbortController();
    const stream = await fetch(`${service.url}/v1/events/stream`, {
      headers: { authorization: `Bearer ${client.key}` },
      signal: leaving.signal,
    });
    expect(stream.status).toBe(200);
    const meanwhile = await scrape();
    expect(meanwhile.get('http_server_active_requests{http_request_method="GET"}')).toBe(1);
    leaving.abort();
    const after = await until(
      scrape,
      (series) => series.get('http_server_active_requests{http_request_method="GET"}') === 0,
    );
    const grown = (labels: string) => count(after, labels) - count(before, labels);
    const get = (route: string, status: number, error: string) =>
      `http_request_method="GET",http_route="${route}",http_response_status_code="${status}",error_type="${error}"`;
    expect(grown(get('/v1/volumes/:id', 404, 'sandbox_not_found'))).toBe(1);
    expect(grown(get('/v1/volumes', 401, 'invalid_api_key'))).toBe(1);
    expect(grown(get('/v1/events/stream', 200, 'client_left'))).toBe(1);
    expect(
      grown('http_request_method="GET",http_response_status_code="404",error_type="route_not_found"'),
    ).toBe(1);
    // No label holds anything that a caller chose.
    expect([...after.keys()].join('\n')).not.toMatch(/no\/such|018f0000/);
  });

  test('organizations are named only where it was asked for', async () => {
    await service.ctx.pool.query('update quotas set max_sandboxes = 2 where org_id = $1', [client.org.id]);
    const series = await scrape();
    const names = [...series.keys()].filter((name) => name.includes(client.org.slug));
    expect(names.length > 0).toBe(byOrg);
    expect([...series.keys()].some((name) => name.includes(client.org.id))).toBe(false);
    expect(series.get('sandkeep_quota_organizations_near_limit{quota="max_sandboxes"}')).toBe(1);
  });

  test('a database that does not answer is told in time, and its series are absent', async () => {
    const blocker = await service.ctx.pool.connect();
    await blocker.query('begin; lock table webhooks in access exclusive mode');
    const began = performance.now();
    const series = await scrape();
    // The limit is six seconds, and the rest is for a busy machine. The table stays locked until the rollback.
    expect(performance.now() - began).toBeLessThan(60_000);
    expect(series.get('sandkeep_database_up')).toBe(0);
    expect(sumOf(series, 'sandkeep_sandboxes{')).toBe(0);
    expect(sumOf(series, 'sandkeep_build_info{')).toBe(1);
    await blocker.query('rollback');
    blocker.release();
    const after = await until(scrape, (found) => found.get('sandkeep_database_up') === 1);
    expect(sumOf(after, 'sandkeep_sandboxes{')).toBeGreaterThan(0);
  });

  test('the use of sandboxes is a sum, and no sandbox is a label', async () => {
    const owner = await service.newOrg();
    const { body } = await owner.post('/v1/sandboxes', smallRequest('uses'), {
      start: true,
      wait_for: 'running',
    });
    const label = byOrg ? `{org="${owner.org.slug}"}` : '';
    const before = await until(
      scrape,
      (found) => (found.get(`sandkeep_sandbox_use_sampled${label}`) ?? 0) >= 1,
    );
    (service.runtime as SimulatedRuntime).work(body.id, 5_000_000);
    await until(
      async () => (await owner.get(`/v1/sandboxes/${body.id}/metrics`)).body,
      ({ current }) => current.cpu_percent > 0,
    );
    const seconds = (found: Series) => found.get(`sandkeep_sandbox_use_cpu_seconds_total${label}`)!;
    const after = await scrape();
    expect(seconds(after) - seconds(before)).toBe(5);
    expect([...after.keys()].join('\n')).not.toContain(body.id);
  });

  test('only /metrics is served', async () => {
    expect((await fetch(`${metrics.url}/v1/sandboxes`)).status).toBe(404);
    expect((await fetch(`${metrics.url}/metrics`, { method: 'POST' })).status).toBe(404);
    expect((await fetch(`${service.url}/metrics`)).status).toBe(404);
  });
});
