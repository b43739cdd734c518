import { afterAll, beforeAll, expect, test } from 'vitest';
import { Overloaded } from '../../../src/db/pool.js';
import { POOL_SLOTS } from '../../../src/db/request-connections.js';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let greedy: Client;
let modest: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  [greedy, modest] = [await service.newOrg(), await service.newOrg()];
});
afterAll(() => service.close());

const LOCK = 8_157_219;
const poolOf = ({ org }: Client) => service.ctx.requests.of(org.id).pool;

async function backends(condition: string): Promise<number[]> {
  const { rows } = await service.ctx.pool.query<{ pid: number }>(
    `select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and ${condition}`,
  );
  return rows.map(({ pid }) => pid);
}

const blocked = () => backends(`wait_event = 'advisory'`);

test('an organization whose statements are slow leaves connections to others', async () => {
  const slow = await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('select pg_advisory_xact_lock($1)', [LOCK]);
    const asked = Promise.allSettled(
      Array.from({ length: 3 * POOL_SLOTS.total }, () =>
        poolOf(greedy).query('select pg_advisory_xact_lock_shared($1)', [LOCK]),
      ),
    );
    await until(blocked, (pids) => pids.length === POOL_SLOTS.each);
    for (let count = 0; count < 50; count += 1) await poolOf(modest).query('select 1');
    expect((await modest.get('/v1/volumes')).status).toBe(200);
    expect(await blocked()).toHaveLength(POOL_SLOTS.each);
    return { asked };
  });
  const ended = await slow.asked;
  // A busy machine may let a statement wait for its slot for too long.
  const refusals = ended.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []));
  expect(refusals.filter((reason) => !(reason instanceof Overloaded))).toEqual([]);
  expect(ended.length - refusals.length).toBeGreaterThanOrEqual(POOL_SLOTS.each);
});

test('statements that fail and connections that end return their slots', async () => {
  const failing = Array.from({ length: 100 }, (_, at) =>
    poolOf(greedy).query(at % 2 === 0 ? 'select 1 / 0' : 'select pg_terminate_backend(pg_backend_pid())'),
  );
  expect((await Promise.allSettled(failing)).every(({ status }) => status === 'rejected')).toBe(true);
  const aborted = Array.from({ length: 50 }, () =>
    inTransaction(poolOf(greedy), () => Promise.reject(new Error('given up'))),
  );
  expect((await Promise.allSettled(aborted)).every(({ status }) => status === 'rejected')).toBe(true);
  const together = Array.from({ length: POOL_SLOTS.each }, () => poolOf(greedy).connect());
  for (const client of await Promise.all(together)) client.release();
});

test('a statement that takes too long is 503 with Retry-After', async () => {
  const asking = await inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('lock table volumes in access exclusive mode');
    const answer = fetch(`${service.url}/v1/volumes`, {
      headers: { authorization: `Bearer ${modest.key}` },
    });
    const waiting = await until(
      () => backends(`wait_event_type = 'Lock' and query like '%volumes%'`),
      (pids) => pids.length === 1,
    );
    // PostgreSQL answers a cancelled statement as one that exceeds its time.
    await service.ctx.pool.query('select pg_cancel_backend($1)', [waiting[0]]);
    const { status, headers } = await answer;
    return [status, headers.get('retry-after')];
  });
  expect(asking).toEqual([503, '1']);
});
