import { afterAll, beforeAll, expect, test } from 'vitest';
import { instantFromMicros, microsOf } from '../../../src/lib/instant.js';
import { insertRun, makeBudget } from '../../support/budgets.js';
import { makeClient, type Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const BEGIN = microsOf('2028-02-11T12:00:00.000000Z');
const CLIENTS = 16;
const STARTS_OF_CLIENT = 6;
const RUNNING = 10;
/** Ten vCPUs have used 0.25 hours after 90 seconds. */
const LIMIT = '0.25';
const EDGE = BEGIN + 90_000_000n;

let service: TestService;
let beside: TestService;
let clock = BEGIN;
beforeAll(async () => {
  const now = () => instantFromMicros(clock);
  service = await startTestService({ worker: false, now });
  beside = await startTestService({ worker: false, now, beside: service });
});
afterAll(async () => {
  await beside.close();
  await service.close();
});

interface Try {
  sent: bigint;
  answered: bigint;
  status: number;
  code: string | undefined;
}

test('no start is admitted once the running sandboxes have used up a budget, by any client of two processes', async () => {
  const client = await service.newOrg();
  for (let count = 0; count < RUNNING; count += 1) {
    const { body } = await client.post('/v1/sandboxes', smallRequest(`runs-${count}`));
    await insertRun(service.ctx.pool, client, {
      sandbox: body.id,
      from: instantFromMicros(BEGIN),
      to: null,
      resources: [1, 1024, 0] as const,
    });
  }
  await makeBudget(client, { measure: 'vcpu_hours', limit: LIMIT, action: 'refuse_starts' });
  const tries: Try[] = [];
  const waiting = CLIENTS * STARTS_OF_CLIENT;
  async function startMany(of: TestService, index: number): Promise<void> {
    const own: Client = makeClient(of.url, client);
    for (let count = 0; count < STARTS_OF_CLIENT; count += 1) {
      const sent = clock;
      const request = smallRequest(`c${index}-${count}`);
      const { status, body } = await own.post('/v1/sandboxes', request, { start: true });
      tries.push({ sent, answered: clock, status, code: body.error?.code });
      // The clock reaches the edge after half of the answers, and passes it.
      const half = BigInt(waiting / 2);
      clock = BEGIN + ((EDGE - BEGIN) * BigInt(tries.length)) / half;
    }
  }
  await Promise.all(
    Array.from({ length: CLIENTS }, (_, index) => startMany(index % 2 ? service : beside, index)),
  );
  expect(tries).toHaveLength(waiting);
  const accepted = tries.filter(({ status }) => status === 200);
  const refused = tries.filter(({ status }) => status !== 200);
  for (const { code } of refused) expect(code).toBe('budget_exceeded');
  // Each request was decided at an instant between its two readings.
  expect(accepted.filter(({ sent }) => sent >= EDGE)).toEqual([]);
  expect(refused.filter(({ answered }) => answered < EDGE)).toEqual([]);
  expect(accepted.length).toBeGreaterThan(0);
  expect(refused.length).toBeGreaterThan(0);
  const { rows } = await service.ctx.pool.query<{ count: number }>(
    'select count(*)::int as count from runs where org_id = $1 and started_at is null',
    [client.org.id],
  );
  expect(rows[0]!.count).toBe(accepted.length);
});

test('beyond the limit only runs add that were admitted before it was reached', async () => {
  const client = await service.newOrg();
  clock = BEGIN;
  const budget = await makeBudget(client, { measure: 'sandbox_hours', limit: '1', action: 'refuse_starts' });
  for (let count = 0; count < 4; count += 1) {
    await client.post('/v1/sandboxes', smallRequest(`a-${count}`), { start: true });
  }
  // All of them start: together they reach an hour after a quarter of one.
  await service.ctx.pool.query('update runs set started_at = $2 where org_id = $1', [
    client.org.id,
    instantFromMicros(BEGIN),
  ]);
  const start = async (name: string) =>
    (await client.post('/v1/sandboxes', smallRequest(name), { start: true })).status;
  clock = BEGIN + 899_999_999n;
  expect(await start('last')).toBe(200);
  clock = BEGIN + 900_000_000n;
  expect(await start('too-late')).toBe(403);
  clock = BEGIN + 3_600_000_000n;
  const { body } = await client.get(`/v1/budgets/${budget.id}`);
  // Four runs of an hour: the overrun is what they used after the edge. The refused ones add nothing.
  expect(body.used).toBe('4');
});
