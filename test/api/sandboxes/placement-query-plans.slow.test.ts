import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectAlone } from '../../../src/db/pool.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { now } from '../../../src/lib/instant.js';
import {
  isAnyWaiting,
  lockWaiting,
  markInsufficientCapacity,
  PASS_RUNS,
  readQueues,
} from '../../../src/sandboxes/placement/queries.js';
import { sandboxesToReconcile } from '../../../src/sandboxes/reconcile/queries.js';
import { insertWorker } from '../../support/insert-worker.js';
import { costOf, PLANNED, sentDuring, type Sent } from '../../support/query-plans.js';
import { loadPlenty } from '../../support/bulk-rows.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

/** A burst of starts outruns the statistics of the database, so it plans with those from before the burst. */

const RESTING = 1_000;
const WAITING = 4_000;
const BATCH = 500;

let service: TestService;
let session: Awaited<ReturnType<typeof connectAlone>>;
let orgId: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  session = await connectAlone(service.database);
  const client = await service.newOrg();
  orgId = client.org.id;
  const { body } = await client.post('/v1/sandboxes', smallRequest('first'));
  await loadPlenty(session, orgId, { sandboxes: RESTING, runs: 10, events: 1_000, until: now(), days: 30 });
  await session.query('vacuum analyze');
  for (const table of ['sandboxes', 'runs']) {
    await session.query(`alter table ${table} set (autovacuum_enabled = false)`);
  }
  await session.query(
    `with made as (
       insert into sandboxes
       select r.* from sandboxes t
       cross join generate_series(1, $2::int) n
       cross join lateral jsonb_populate_record(t, jsonb_build_object(
         'id', gen_random_uuid(), 'run_id', gen_random_uuid(), 'name', 'waiting-' || n, 'slug', 'waiting-' || n,
         'status', 'starting', 'status_reason', 'scheduling')) r
       where t.id = $1
       returning org_id, id, run_id)
     insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib)
     select org_id, run_id, id, 1, 128, 0 from made`,
    [body.id, WAITING],
  );
});
afterAll(async () => {
  await session?.end();
  await service?.close();
});

test('queued starts are read through the indexes of queued runs and of sandbox keys', async () => {
  const { pool } = service.ctx;
  const sent = await sentDuring(async () => {
    expect(await isAnyWaiting(pool, 'simulated')).toBe(true);
    const queue = await readQueues(pool, 'simulated', []);
    expect(queue).toHaveLength(PASS_RUNS);
    const ids = queue.map(({ runId }) => runId);
    expect(ids).toEqual(ids.toSorted());
    const locked = await inTransaction(pool, (tx) => lockWaiting(tx, 'simulated', queue));
    expect(locked.map(({ runId }) => runId)).toEqual(ids);
  });
  expect(sent).toHaveLength(3);
  await expectLookedUp(sent, PASS_RUNS);
});

test('the sandboxes of a worker are read through their keys', async () => {
  const { rows } = await session.query<{ id: string; worker: string }>(
    `update sandboxes set worker_id = $1, status_reason = null
     where id in (select id from sandboxes where status = 'starting' limit $2) returning id, worker_id as worker`,
    [await insertWorker(session), BATCH],
  );
  const worker = { id: rows[0]!.worker, runtime: 'simulated' };
  const held = rows.map(({ id }) => ({ orgId, sandboxId: id }));
  const sent = await sentDuring(async () => {
    const found = new Set(
      (await sandboxesToReconcile(service.ctx.pool, worker, held)).map(({ sandboxId }) => sandboxId),
    );
    expect(held.filter(({ sandboxId }) => !found.has(sandboxId))).toEqual([]);
  });
  expect(sent).toHaveLength(1);
  // Each sandbox is read twice, once by its key, and its run once.
  await expectLookedUp(sent, 3 * BATCH);
});

test('a queued start with its reason already recorded is neither written nor locked again', async () => {
  const { rows: workers } = await session.query<{ id: string }>(
    `select id from workers where holder = 'nobody'`,
  );
  const worker = workers[0]!.id;
  const tellAll = () =>
    inTransaction(service.ctx.pool, (tx) =>
      readQueues(tx, 'simulated', [worker]).then((queue) =>
        markInsufficientCapacity(
          tx,
          'simulated',
          queue.map((run) => ({ ...run, words: 'no room' })),
          now(),
        ),
      ),
    );
  // The transactions that last wrote or locked each row.
  const holders = async () =>
    (
      await session.query<{ id: string }>(
        `select id, xmin::text, xmax::text from sandboxes where status_reason = 'insufficient_capacity' order by id`,
      )
    ).rows;
  await tellAll();
  const before = await holders();
  expect(before).toHaveLength(PASS_RUNS);
  await tellAll();
  expect(await holders()).toEqual(before);
});

async function expectLookedUp(sent: readonly Sent[], count: number): Promise<void> {
  for (const statement of sent) {
    for (const planned of PLANNED) {
      const { walked, buffers } = await costOf(session, statement, orgId, planned);
      expect([statement.text, walked]).toEqual([statement.text, []]);
      expect(buffers, statement.text).toBeLessThan(count * 15);
    }
  }
}
