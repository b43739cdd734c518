import { expect, test } from 'vitest';
import { lockLongWaits } from '../../../src/sandboxes/placement/wait-queries.js';
import { makePlacement, READ_MANY_EVERY_MS } from '../../../src/sandboxes/placement/place.js';
import { HEAD_RUNS, PASS_RUNS, readQueues } from '../../../src/sandboxes/placement/queries.js';
import { inTransaction } from '../../../src/db/transaction.js';
import type { Client } from '../../support/client.js';
import { insertWorker } from '../../support/insert-worker.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, type TestService } from '../../support/service.js';
import type { Term } from '../../../src/workers/lease.js';

const running = { start: true, wait_for: 'running' };
const withCpus = (vcpus: number) => ({ resources: { vcpus, memory_mib: 64 } });
const untilShortOfRoom = (client: Client, id: string) =>
  until(
    () => client.get(`/v1/sandboxes/${id}`),
    ({ body }) => body.status_reason === 'insufficient_capacity',
  );

/** So many further starts of the sandbox's organization, like that of the sandbox. */
async function queueMore({ ctx }: TestService, sandboxId: string, count: number): Promise<void> {
  await ctx.pool.query(
    `with more as (
       insert into sandboxes (org_id, id, name, slug, status, status_reason, ephemeral, created_at, changed_at, spec,
         run_spec, runtime, run_id)
       select org_id, gen_random_uuid(), 'more-' || n, 'more-' || n, 'starting', 'scheduling', false, created_at,
         changed_at, spec, run_spec, runtime, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid
       from sandboxes, generate_series(1, $2::int) n where id = $1
       returning org_id, id, run_id)
     insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib) select org_id, run_id, id, 1, 64, 0 from more`,
    [sandboxId, count],
  );
}

test('a start as large as the machine does not delay small starts of another organization', async () => {
  const service = await startForTest({ simulated: { capacity: { vcpus: 100 } } });
  const [large, small] = [await service.newOrg(), await service.newOrg()];
  await large.post('/v1/sandboxes', smallRequest('first', withCpus(1)), running);
  const { body: waiting } = await large.post('/v1/sandboxes', smallRequest('large', withCpus(100)), {
    start: true,
  });
  await untilShortOfRoom(large, waiting.id);
  for (let index = 0; index < 5; index += 1) {
    const { body } = await small.post('/v1/sandboxes', smallRequest(`small-${index}`, withCpus(1)), running);
    expect(body.status).toBe('running');
  }
  expect((await large.get(`/v1/sandboxes/${waiting.id}`)).body.status).toBe('starting');
  // It begins when the others leave it room.
  for (const client of [large, small]) {
    for (const { id, status } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      if (status === 'running') await client.post(`/v1/sandboxes/${id}/stop`, {});
    }
  }
  await untilStatus(large, waiting.id, 'running');
});

test('the first start of an organization overtakes forty queued starts of another', async () => {
  const service = await startForTest({ simulated: { capacity: { vcpus: 2 } } });
  const [busy, late] = [await service.newOrg(), await service.newOrg()];
  const first = [];
  for (const name of ['a', 'b']) {
    first.push((await busy.post('/v1/sandboxes', smallRequest(name, withCpus(1)), running)).body);
  }
  const queued = await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      busy.post('/v1/sandboxes', smallRequest(`queued-${index}`, withCpus(1)), { start: true }),
    ),
  );
  await untilShortOfRoom(busy, queued.at(-1)!.body.id);
  const { body } = await late.post('/v1/sandboxes', smallRequest('late', withCpus(1)), { start: true });
  await untilShortOfRoom(late, body.id);
  await busy.post(`/v1/sandboxes/${first[0]!.id}/stop`, {});
  await untilStatus(late, body.id, 'running');
  const { data } = (await busy.get('/v1/events', { event_type: 'sandbox_started' })).body;
  expect(data).toHaveLength(2);
});

test('a queue longer than a placement hides no start of another organization', async () => {
  const service = await startForTest({ worker: false });
  const [many, few] = [await service.newOrg(), await service.newOrg()];
  const { body: first } = await many.post('/v1/sandboxes', smallRequest('first'), { start: true });
  await queueMore(service, first.id, PASS_RUNS * 2);
  const { body: last } = await few.post('/v1/sandboxes', smallRequest('last'), { start: true });
  const { ctx } = service;
  const queue = await readQueues(ctx.pool, 'simulated', []);
  const of = ({ org }: Client) => queue.filter(({ orgId }) => orgId === org.id).length;
  expect([of(many), of(few)]).toEqual([PASS_RUNS / 2, 1]);

  const noted = await inTransaction(ctx.pool, (tx) => lockLongWaits(tx, 'simulated', Date.now() + 1_000, 10));
  expect(noted.map(({ sandbox_id }) => sandbox_id)).toContain(last.id);
  expect(noted).toHaveLength(6);
  expect(noted.every(({ has_worker }) => !has_worker)).toBe(true);
});

test('the head of a long queue is considered by each placement, the rest once a second', async () => {
  const service = await startForTest({ worker: false });
  const client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('first'), { start: true });
  await queueMore(service, body.id, HEAD_RUNS * 2);
  const { pool } = service.ctx;
  await insertWorker(pool, { capabilities: service.runtime.capabilities, aliveSeconds: 3_600 });
  const considered = async () => {
    const { rows } = await pool.query<{ count: number }>(
      `select count(*)::int as count from sandboxes where status_reason = 'insufficient_capacity'`,
    );
    return rows[0]!.count;
  };
  const forget = () => pool.query(`update sandboxes set status_reason = 'scheduling'`);
  const place = makePlacement(service.ctx);
  const term = { assertHeld: () => Promise.resolve() } as unknown as Term;
  await place(term, 0);
  expect(await considered()).toBe(HEAD_RUNS * 2 + 1);
  await forget();
  await place(term, READ_MANY_EVERY_MS - 1);
  expect(await considered()).toBe(HEAD_RUNS);
  await place(term, READ_MANY_EVERY_MS);
  expect(await considered()).toBe(HEAD_RUNS * 2 + 1);
});
