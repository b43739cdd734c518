import { expect, test } from 'vitest';
import { parseQuotas, setQuotas } from '../../../src/quotas/set.js';
import { operator } from '../../../src/audit/events/actor.js';
import { Dice } from '../../crash/support/seeded-random.js';
import { readSeed } from '../../support/budget.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, type TestService } from '../../support/service.js';

const SEED = readSeed('SANDKEEP_TEST_POOLS_SEED');
const ROUNDS = 12;
const AT_ONCE = 8;
const { name: _, ...small } = smallRequest('pool');

/**
 * Random creates, deletions and changes of pools at once. The test keeps the ids that creates got and the latest size,
 * and knows nothing else of pools.
 */
test(`no sandbox is given twice, and quotas and usage are exact: SANDKEEP_TEST_POOLS_SEED=${SEED}`, async () => {
  const dice = new Dice(SEED);
  const service = await startForTest({ simulated: { startMs: 2, stopMs: 1 } });
  const client = await service.newOrg();
  await setQuotas(service.ctx.pool, client.org.id, parseQuotas(['max_sandboxes=12']), operator('test'));
  const given: string[] = [];
  let [size, most, names, warm] = [2, null as number | null, 0, 0];
  const put = async () => {
    [size, most] = [dice.between(0, 4), dice.chance(0.5) ? dice.between(4, 8) : null];
    const answer = await client.request('PUT', '/v1/pools/pool', { body: { ...small, size, most } });
    expect(answer.status, answer.text).toBe(200);
  };
  const create = async () => {
    const name = `own-${(names += 1)}`;
    const lifecycle = { ephemeral: dice.chance(0.3) };
    const request = { ...smallRequest(name), lifecycle, labels: { own: 'yes' } };
    const { status, body } = await client.post('/v1/sandboxes', request, {
      start: true,
      wait_for: 'running',
    });
    if (status === 403) return expect(body.error.code).toBe('quota_exceeded');
    expect([status, body.name, body.spec.labels]).toEqual([200, name, { own: 'yes' }]);
    if (body.source?.start === 'warm') warm += 1;
    given.push(body.id);
  };
  const remove = async () => {
    const id = given[dice.between(0, Math.max(0, given.length - 1))];
    if (id !== undefined) await client.delete(`/v1/sandboxes/${id}`);
  };
  await put();
  for (let round = 0; round < ROUNDS; round += 1) {
    const steps = Array.from({ length: AT_ONCE }, () =>
      dice.weighted({ create: 5, remove: 4 }) === 'create' ? create() : remove(),
    );
    if (dice.chance(0.4)) steps.push(put());
    await Promise.all(steps);
    await settled(service, client, size);
  }
  expect(new Set(given).size).toBe(given.length);
  console.log(`pools: ${warm} of ${given.length} creates were warm`);
  await client.delete('/v1/pools/pool');
  await until(
    () => members(service, client),
    (count) => count === 0,
  );
  // An export ends at the sealed part of the log.
  await untilSealed(service.ctx.pool, client.org.id);
  expect(await shownPoolSeconds(client)).toBeCloseTo(await recordedPoolSeconds(client), 5);
});

async function members(service: TestService, client: Client): Promise<number> {
  const { rows } = await service.ctx.pool.query<{ count: number }>(
    'select count(*)::int as count from sandboxes where org_id = $1 and warm and destroyed_at is null',
    [client.org.id],
  );
  return rows[0]!.count;
}

/** The pool has at most its size, and the counts of the quotas are those of the rows. */
async function settled(service: TestService, client: Client, size: number): Promise<void> {
  const read = async () =>
    service.ctx.pool.query<Record<string, number>>(
      `select count(*) filter (where removed_at is null)::int as existing,
         count(*) filter (where removed_at is null and ephemeral and status in ('starting', 'running'))::int as ephemeral,
         count(*) filter (where removed_at is null and not ephemeral and status in ('starting', 'running'))::int as persistent,
         count(*) filter (where removed_at is null and warm)::int as warm,
         (select count(*)::int from sandboxes s where s.org_id = $1 and s.status in ('starting', 'stopping') and s.removed_at is null) as moving,
         (select array[sum(existing), sum(ephemeral_running), sum(persistent_running)]::int[] from sandbox_counts where org_id = $1) as counted
       from sandboxes where org_id = $1`,
      [client.org.id],
    );
  const { rows } = await until(
    read,
    (found) => found.rows[0]!['warm']! <= size && found.rows[0]!['moving'] === 0,
  );
  const { existing, ephemeral, persistent, counted } = rows[0]!;
  expect(counted).toEqual([existing, ephemeral, persistent]);
  expect(existing).toBeLessThanOrEqual(12);
}

/** From the events alone: from each start of a member to its create, or to the end of its run. */
async function recordedPoolSeconds(client: Client): Promise<number> {
  const { text: lines } = await client.get('/v1/events/export');
  const events = lines
    .trim()
    .split('\n')
    .map((text) => JSON.parse(text))
    // The last line is a checkpoint.
    .filter(({ payload }) => payload !== undefined);
  const times = new Map<string, { from?: number; to?: number }>();
  for (const { event_type: type, timestamp, payload } of events) {
    if (type === 'pool_sandbox_added') times.set(payload.sandbox_id, {});
    const time = times.get(payload.sandbox_id);
    if (!time) continue;
    if (type === 'sandbox_started')
      time.from ??= Date.parse(payload.started_at) * 1_000 + rest(payload.started_at);
    if (type === 'sandbox_created') time.to ??= Date.parse(timestamp) * 1_000 + rest(timestamp);
    if (payload.stopped_at) time.to ??= Date.parse(payload.stopped_at) * 1_000 + rest(payload.stopped_at);
  }
  return [...times.values()].reduce((sum, { from, to }) => sum + (from && to ? (to - from) / 1e6 : 0), 0);
}

/** The microseconds that Date drops. */
function rest(instant: string): number {
  return Number((/\.(\d+)Z$/.exec(instant)?.[1] ?? '').padEnd(6, '0').slice(3, 6));
}

async function shownPoolSeconds(client: Client): Promise<number> {
  const { body } = await client.get('/v1/billing/usage/labels', { key: 'service.pool' });
  return body.rows
    .filter(({ value }: { value?: string }) => value === 'pool')
    .reduce((sum: number, row: { vcpu_seconds: number }) => sum + row.vcpu_seconds, 0);
}
