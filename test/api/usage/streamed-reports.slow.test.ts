import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient, type Client } from '../../support/client.js';
import { plainUsage } from '../../support/usage-oracle.js';
import { startTestService, type TestService } from '../../support/service.js';
import { askAndStare } from '../../support/unread-response.js';
import { until } from '../../support/polling.js';
import { newOrgOfAYear } from '../../support/year-of-runs.js';

const WINDOW = { since: '2025-01-01', until: '2026-01-01' };
const SANDBOXES = 400;

let service: TestService;
let large: Client;
beforeAll(async () => {
  // A reader that waits for its turn may need longer than the default on a busy machine.
  const settings = { usageStallMs: 3_000, usagePatienceMs: 150_000, maxUsageStreams: 2 };
  service = await startTestService({ worker: false, settings });
  large = await newOrgOfAYear(service, SANDBOXES, 'box');
});
afterAll(() => service.close());

const stare = (client: Client) =>
  askAndStare(client, `/v1/billing/usage/sandbox?${new URLSearchParams(WINDOW).toString()}`);

async function untilIdle(): Promise<void> {
  const { requests } = service.ctx;
  await until(
    () => Promise.resolve(requests.watched.totalCount - requests.watched.idleCount),
    (busy) => busy === 0,
  );
}

test('a report over months of many sandboxes is complete and in order', async () => {
  const asked = { since: '2025-06-01', until: '2025-08-01' };
  const { status, body } = await large.get('/v1/billing/usage/sandbox', asked);
  expect(status).toBe(200);
  const range = { since: '2025-06-01T00:00:00.000000Z', until: '2025-08-01T00:00:00.000000Z' };
  const plain = await plainUsage(service.ctx.pool, large.org.id, { ...range, now: service.ctx.now() });
  expect(plain).toHaveLength(61 * SANDBOXES);
  // The rows are compared as text: printing a difference of a megabyte would take minutes.
  expect(JSON.stringify(body.rows) === JSON.stringify(plain)).toBe(true);
  expect(body.sandboxes).toHaveLength(SANDBOXES);
});

test('a client that reads nothing does not delay other organizations', async () => {
  const settings = { usageStallMs: 600_000, maxUsageStreams: 2 };
  const patient = await startTestService({ worker: false, settings, beside: service });
  try {
    const other = makeClient(patient.url, await service.newOrg());
    const staring = await stare(makeClient(patient.url, large));
    // The service allows the client that reads nothing ten minutes.
    expect((await other.get('/v1/billing/usage/sandbox')).status).toBe(200);
    staring.destroy();
  } finally {
    await patient.close();
  }
});

test('a client that reads nothing is cut off, and holds at most one connection', async () => {
  const staring = await stare(large);
  const closed = new Promise((resolve) => staring.once('close', resolve));
  expect(service.ctx.requests.watched.totalCount - service.ctx.requests.watched.idleCount).toBe(1);
  await untilIdle();
  staring.resume();
  await closed;
  expect(staring.complete).toBe(false);
});

test('a client that disconnects during a report leaves no connection in use', async () => {
  const staring = await stare(large);
  staring.destroy();
  await untilIdle();
  expect((await large.get('/v1/billing/usage/sandbox')).status).toBe(200);
  expect(service.logs.filter((line) => line.includes('reading a stream failed'))).toEqual([]);
});

test('reports of one organization wait for their turn', async () => {
  const staring = await stare(large);
  const closed = new Promise((resolve) => staring.once('close', resolve));
  expect((await large.get('/v1/billing/usage/sandbox')).status).toBe(200);
  // The second report has the place of the first one, which was cut off.
  staring.resume();
  await closed;
  expect(staring.complete).toBe(false);
  await untilIdle();
});

test('unreadable usage is an error, not half an answer', async () => {
  await service.ctx.pool.query('alter table usage_days rename to elsewhere');
  try {
    const { status, body } = await large.get('/v1/billing/usage/sandbox', WINDOW);
    expect([status, body.error.code]).toEqual([500, 'internal_error']);
  } finally {
    await service.ctx.pool.query('alter table elsewhere rename to usage_days');
  }
});
