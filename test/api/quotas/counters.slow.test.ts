import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { connectAlone } from '../../../src/db/pool.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { sleep } from '../../../src/lib/sleep.js';
import {
  compactCounts,
  getQuotas,
  lockQuotas,
  COMPACT_BATCH,
  updateLimits,
} from '../../../src/quotas/queries.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { compactAllCounts } from '../../../src/quotas/jobs.js';
import { clientOf, importAll, line } from '../../support/import-lines.js';
import { costOf, PLANNED, sentDuring } from '../../support/query-plans.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until } from '../../support/polling.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

async function counted(orgId: string): Promise<unknown> {
  const { pool } = service.ctx;
  const { rows } = await pool.query(
    `select count(*)::int as existing,
       (count(*) filter (where runs and ephemeral))::int as ephemeral_running,
       (count(*) filter (where runs and not ephemeral))::int as persistent_running
     from (
       select ephemeral, runtime is not null and status in ('starting', 'running') as runs
       from sandboxes where org_id = $1 and removed_at is null) s`,
    [orgId],
  );
  return rows[0];
}

async function kept(orgId: string): Promise<unknown> {
  const row = (await getQuotas(service.ctx.pool, orgId))!;
  const { existing, ephemeral_running, persistent_running } = row;
  return { existing, ephemeral_running, persistent_running };
}

/** Seeded pseudo-random numbers below `below`. */
function chances(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

test('the stored counters equal the sandboxes during concurrent changes, folds and rollbacks', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  const orgId = client.org.id;
  const made: string[] = [];
  const some = chances(7);
  const act = async (index: number): Promise<unknown> => {
    const target = made[some(made.length + 1)];
    switch (some(8)) {
      case 0:
        return compactCounts(pool, orgId);
      case 1:
        return target && client.delete(`/v1/sandboxes/${target}`);
      case 2:
        return target && client.post(`/v1/sandboxes/${target}/stop`, {});
      case 3:
        return target && client.post(`/v1/sandboxes/${target}/start`, {});
      case 4:
        // This transaction rolls back after its writes.
        return inTransaction(pool, async (tx) => {
          await tx.query('update sandboxes set removed_at = now() where org_id = $1 and id = $2', [
            orgId,
            target ?? orgId,
          ]);
          await compactCounts(tx, orgId);
          throw new Error('given up');
        }).catch(() => undefined);
      default: {
        const request = smallRequest(`s-${index}`, { lifecycle: { ephemeral: some(2) === 0 } });
        const { body } = await client.post('/v1/sandboxes', request, { start: some(2) === 0 });
        return made.push(body.id);
      }
    }
  };
  let next = 0;
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      while (next < 240) await act((next += 1));
    }),
  );
  expect(made.length).toBeGreaterThan(20);
  expect(await kept(orgId)).toEqual(await counted(orgId));
  await compactCounts(pool, orgId);
  expect(await kept(orgId)).toEqual(await counted(orgId));
  expect((await getQuotas(pool, orgId))!.count_rows).toBe(1);
});

test('imported sandboxes count as existing, not as running', async () => {
  const org = line.org();
  const statuses = ['running', 'stopped', 'starting'].map((status) => line.sandbox(org, { status }));
  await importAll(service, [org, ...statuses]);
  const client = await clientOf(service, org);
  expect(await kept(client.org.id)).toEqual({ existing: 3, ephemeral_running: 0, persistent_running: 0 });
  expect(await counted(client.org.id)).toEqual(await kept(client.org.id));
});

test('concurrent creates that start far below a limit succeed exactly as often as it allows', async () => {
  const client = await service.newOrg();
  const { pool } = service.ctx;
  const { most_at_once } = (await getQuotas(pool, client.org.id))!;
  // Within twice the highest concurrency of a limit, requests take the exclusive lock.
  const limit = 2 * most_at_once + 30;
  await setQuotas(pool, client.org.id, { max_sandboxes: limit }, operator('test'));
  let next = 0;
  let made = 0;
  await Promise.all(
    Array.from({ length: 24 }, async () => {
      while (next < limit + 40) {
        const { status } = await client.post('/v1/sandboxes', smallRequest(`far-${(next += 1)}`));
        if (status === 200) made += 1;
        else expect(status).toBe(403);
      }
    }),
  );
  expect(made).toBe(limit);
  expect(await kept(client.org.id)).toEqual(await counted(client.org.id));
});

test('starts close to a limit are neither delayed nor refused by creates far below another limit', async () => {
  const client = await service.newOrg();
  const orgId = client.org.id;
  const near = 40;
  const quotas = { max_sandboxes: 100_000, max_concurrent_persistent_running: near };
  await setQuotas(service.ctx.pool, orgId, quotas, operator('test'));
  const make = async (name: string) => {
    const { status, body } = await client.post('/v1/sandboxes', smallRequest(name));
    expect(status).toBe(200);
    return body.id as string;
  };
  const waiting = await Promise.all(Array.from({ length: near + 10 }, (_, index) => make(`near-${index}`)));
  const over = new AbortController();
  const creates = Array.from({ length: 20 }, async (_, asker) => {
    for (let round = 0; !over.signal.aborted; round += 1) await make(`far-${asker}-${round}`);
  });
  const statuses: number[] = [];
  await Promise.all(
    Array.from({ length: 4 }, async () => {
      for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
        statuses.push((await client.post(`/v1/sandboxes/${id}/start`, {})).status);
      }
    }),
  );
  over.abort();
  await Promise.all(creates);
  const among = (wanted: number) => statuses.filter((status) => status === wanted).length;
  expect([among(200), among(403), statuses.length]).toEqual([near, 10, near + 10]);
  expect(await kept(orgId)).toEqual(await counted(orgId));
});

test('a limit set while a request waits for the lock applies to that request', async () => {
  const { ctx } = service;
  const client = await service.newOrg();
  const orgId = client.org.id;
  await setQuotas(ctx.pool, orgId, { max_sandboxes: 10 }, operator('test'));
  const [asked] = await inTransaction(ctx.pool, async (tx) => {
    await lockQuotas(tx, orgId, 'exclusive');
    const request = client.request('POST', '/v1/sandboxes', {
      query: { start: 'true' },
      body: smallRequest('late'),
    });
    await until(
      async () => (await ctx.pool.query(WAITING_FOR_A_LOCK)).rows.length,
      (count) => count === 1,
    );
    await updateLimits(tx, orgId, { max_concurrent_persistent_running: 0 }, ctx.now());
    return [request];
  });
  expect((await asked).body.error).toMatchObject({
    code: 'quota_exceeded',
    details: { quota: 'max_concurrent_persistent_running', limit: 0 },
  });
});

const WAITING_FOR_A_LOCK = `select from pg_locks join pg_database on pg_database.oid = database
  where locktype = 'advisory' and not granted and datname = current_database()`;

/** Adds the rows of this many changes that cancel out. */
async function addParts(orgId: string, count: number): Promise<void> {
  await service.ctx.pool.query(
    `insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
     select $1, 0, 0, 0 from generate_series(1, $2::int)`,
    [orgId, count],
  );
}

test('the background job folds all rows of counters that no request reads, in several batches', async () => {
  const { ctx } = service;
  for (const parts of [20, 2_500]) {
    const { org } = await service.newOrg();
    await addParts(org.id, parts);
    await compactAllCounts(ctx, new AbortController().signal);
    expect((await getQuotas(ctx.pool, org.id))!.count_rows).toBe(1);
  }
});

test('one transaction folds at a time, and others skip the fold without waiting', async () => {
  const { pool } = service.ctx;
  const { org } = await service.newOrg();
  await addParts(org.id, 2_500);
  await inTransaction(pool, async (tx) => {
    expect(await compactCounts(tx, org.id)).toBe(COMPACT_BATCH);
    expect(await compactCounts(pool, org.id)).toBe(0);
  });
  expect(await compactCounts(pool, org.id)).toBe(COMPACT_BATCH);
});

test('a request sums the counters only for limits that are set and apply to it', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  await client.post('/v1/sandboxes', smallRequest('one'));
  const concerned = ['max_sandboxes', 'max_concurrent_ephemeral_running'] as const;
  const existing = async () => (await getQuotas(pool, client.org.id, concerned))!.existing;
  await setQuotas(pool, client.org.id, { max_concurrent_persistent_running: 5 }, operator('test'));
  expect(await existing()).toBe(0);
  await setQuotas(pool, client.org.id, { max_concurrent_ephemeral_running: 5 }, operator('test'));
  expect(await existing()).toBe(1);
});

test('summing the counters does not visit deleted rows that vacuum has not removed', async () => {
  const { pool, requests } = service.ctx;
  const { org } = await service.newOrg();
  await pool.query('alter table sandbox_counts set (autovacuum_enabled = false)');
  // An analyze by autovacuum while another test has 2,500 rows makes the planner read the whole table, until the next
  // analyze.
  await pool.query('vacuum analyze sandbox_counts');
  for (let round = 0; round < 20; round += 1) {
    await addParts(org.id, 999);
    await compactCounts(pool, org.id);
  }
  const [statement] = await sentDuring(() => getQuotas(requests.of(org.id).pool, org.id));
  const { rows } = await pool.query<{ pages: number }>(
    "select (pg_relation_size('sandbox_counts_pkey') / 8192)::int as pages",
  );
  const session = await connectAlone(service.database);
  try {
    for (const planned of PLANNED) {
      // At most the index is read, not the table, once no open snapshot can see the deleted rows. A snapshot of
      // analyze may delay that.
      const { buffers } = await until(
        () => costOf(session, statement!, org.id, planned),
        (cost) => cost.buffers < rows[0]!.pages + 20,
      );
      expect(buffers).toBeLessThan(rows[0]!.pages + 20);
    }
  } finally {
    await session.end();
    await pool.query('alter table sandbox_counts reset (autovacuum_enabled)');
  }
});

test.each([
  ['new to this process', 0],
  ['with much room before', 2],
])(
  'creates of an organization %s do not deadlock while they wait for a limit to be lowered',
  async (_, made) => {
    const client = await service.newOrg();
    const { pool } = service.ctx;
    const orgId = client.org.id;
    const { most_at_once } = (await getQuotas(pool, orgId))!;
    await setQuotas(pool, orgId, { max_sandboxes: 2 * most_at_once + 100 }, operator('test'));
    for (let index = 0; index < made; index += 1)
      await client.post('/v1/sandboxes', smallRequest(`made-${index}`));
    const own = 'select oid from pg_database where datname = current_database()';
    const deadlocks = async () => {
      const { rows } = await pool.query(`select deadlocks from pg_stat_database where datid = (${own})`);
      return rows[0].deadlocks as number;
    };
    const before = await deadlocks();
    const creates = await inTransaction(pool, async (tx) => {
      await lockQuotas(tx, orgId, 'exclusive');
      const asked = Array.from({ length: 12 }, (_, index) =>
        client.post('/v1/sandboxes', smallRequest(`queued-${index}`)),
      );
      await until(
        () =>
          pool.query(
            `select 1 from pg_locks where database = (${own}) and mode = 'ShareLock' and not granted`,
          ),
        ({ rows }) => rows.length >= 8,
      );
      await updateLimits(tx, orgId, { max_sandboxes: 5 }, service.ctx.now());
      return asked;
    });
    const statuses = (await Promise.all(creates)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(5 - made);
    expect(statuses.filter((status) => status === 403)).toHaveLength(7 + made);
    // A PostgreSQL session reports its statistics at most once a second.
    await sleep(1_500);
    await client.get('/v1/sandboxes');
    expect(await deadlocks()).toBe(before);
  },
);
