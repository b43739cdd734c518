import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrate } from '../../../src/db/migrate.js';
import { connectAlone } from '../../../src/db/pool.js';
import { inTransaction, type Transaction } from '../../../src/db/transaction.js';
import { addMillis, instantFromMicros, microsOf, type Instant } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import {
  insertRun,
  readRunTimes,
  touchRuns,
  writeRunTimes,
  type RunTimes,
} from '../../../src/runs/queries.js';
import { sandboxBreakdown } from '../../../src/usage/breakdown.js';
import { computeDays } from '../../../src/usage/summary-queries.js';
import type { Window } from '../../../src/usage/window.js';
import type { Client } from '../../support/client.js';
import { withOlderDatabase } from '../../support/older-database.js';
import { plainTotals, plainUsage } from '../../support/usage-oracle.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const DAY = 86_400_000;
const BEGIN = '2028-02-26T00:00:00.000000Z';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

/** Times around a leap day, to the microsecond, and often at midnight. */
const instant = fc
  .tuple(fc.nat(6), fc.oneof(fc.constantFrom(0, 1e-3, DAY - 1e-3), fc.integer({ min: 0, max: DAY - 1 })))
  .map(([day, millis]) =>
    instantFromMicros(microsOf(addMillis(BEGIN, day * DAY)) + BigInt(Math.round(millis * 1000))),
  );

const sandbox = fc.nat(3);
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('open' as const), sandbox, at: instant }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('close' as const), sandbox, at: instant }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('import' as const),
      runs: fc.array(fc.record({ sandbox, a: instant, b: instant }), { maxLength: 5 }),
    }),
  },
  fc.record({ kind: fc.constant('rename' as const), sandbox, name: fc.constantFrom('a', 'Zz', 'm', 'b.c') }),
  fc.record({ kind: fc.constant('mend' as const), at: instant }),
  fc.record({ kind: fc.constant('delete' as const), sandbox }),
  fc.record({ kind: fc.constant('touch' as const), sandbox, at: instant }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const window = fc
  .tuple(instant, instant, instant)
  .filter(([a, b]) => a !== b)
  .map(([a, b, now]): Window => (a < b ? { since: a, until: b, now } : { since: b, until: a, now }));

interface History {
  client: Client;
  sandboxes: string[];
  open: Map<string, string>;
}

async function begin(): Promise<History> {
  const client = await service.newOrg();
  const sandboxes: string[] = [];
  for (let index = 0; index < 4; index += 1) {
    sandboxes.push((await client.post('/v1/sandboxes', smallRequest(`s-${index}`))).body.id);
  }
  return { client, sandboxes, open: new Map() };
}

async function writeTimes(orgId: string, runId: string, change: (run: RunTimes) => RunTimes): Promise<void> {
  const { pool } = service.ctx;
  await writeRunTimes(pool, (await readRunTimes(pool, [{ orgId, runId }])).map(change));
}

async function take({ client, sandboxes, open }: History, what: Step): Promise<void> {
  const { pool } = service.ctx;
  const orgId = client.org.id;
  const id = 'sandbox' in what ? sandboxes[what.sandbox]! : '';
  const resources = {
    vcpus: 3,
    memory_mib: 700,
    disk_mib: 0,
    max_duration_secs: null,
    idle_timeout_secs: null,
  };
  const running = open.get(id);
  switch (what.kind) {
    case 'open': {
      if (running !== undefined) return;
      const runId = uuidv7();
      open.set(id, runId);
      await insertRun(pool, { org_id: orgId, id: runId, sandbox_id: id, ...resources });
      await writeTimes(orgId, runId, (run) => ({ ...run, started_at: what.at, seen_at: what.at }));
      return;
    }
    case 'close':
      if (running === undefined) return;
      open.delete(id);
      await writeTimes(orgId, running, ({ started_at, ...run }) => {
        const stopped_at = started_at !== null && started_at > what.at ? started_at : what.at;
        return { ...run, started_at, stopped_at, end_reason: 'test' };
      });
      return;
    case 'touch':
      if (running !== undefined) await touchRuns(pool, [{ orgId, runId: running }], what.at);
      return;
    case 'import':
      await pool.query(
        `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
         select $1, gen_random_uuid(), sandbox_id, 2, 2000000000, 5, least(a, b), greatest(a, b), 'imported'
         from unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[]) as t (sandbox_id, a, b)`,
        [
          orgId,
          what.runs.map((run) => sandboxes[run.sandbox]),
          what.runs.map(({ a }) => a),
          what.runs.map(({ b }) => b),
        ],
      );
      return;
    case 'rename':
      await client.patch(`/v1/sandboxes/${id}`, { name: what.name });
      return;
    case 'mend':
      await pool.query(
        `update runs set stopped_at = greatest(started_at, $2), vcpus = vcpus + 1
         where (org_id, id) = (select org_id, id from runs where org_id = $1 and stopped_at is not null limit 1)`,
        [orgId, what.at],
      );
      return;
    case 'delete':
      await pool.query('delete from runs where org_id = $1 and sandbox_id = $2 and stopped_at is not null', [
        orgId,
        id,
      ]);
  }
}

function snapshot<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
  return inTransaction(service.ctx.pool, async (tx) => {
    await tx.query('set transaction isolation level repeatable read');
    return work(tx);
  });
}

/** The answer, and the sum over the runs, from one snapshot. The stored total of all sandboxes is compared here. */
function bothWays(orgId: string, asked: Window): Promise<{ answered: any; plain: unknown[] }> {
  return snapshot(async (tx) => {
    const scope = { orgId, sandboxIds: undefined, labels: {} };
    let text = '';
    for await (const part of sandboxBreakdown(tx, scope, asked, 'json')) text += part;
    expect(await computeDays(tx, orgId, asked)).toEqual(await plainTotals(tx, orgId, asked));
    return { answered: JSON.parse(text), plain: await plainUsage(tx, orgId, asked) };
  });
}

test('after any changes to runs, stored days and runs give the same usage in every window', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 25 }),
      fc.array(window, { minLength: 4, maxLength: 4 }),
      async (steps, windows) => {
        const history = await begin();
        for (const what of steps) await take(history, what);
        for (const asked of windows) {
          const { answered, plain } = await bothWays(history.client.org.id, asked);
          expect(answered.rows).toEqual(plain);
          expect(answered.sandboxes.map(({ id }: { id: string }) => id).toSorted()).toEqual(
            [...new Set(plain.map((row) => (row as { sandbox_id: string }).sandbox_id))].toSorted(),
          );
        }
      },
    ),
    { numRuns: 30 },
  );
});

test('stored days and runs agree while runs are opened, closed, imported and renamed concurrently', async () => {
  const history = await begin();
  const steps = fc.sample(step, 240).filter(({ kind }) => kind !== 'touch');
  const written = new AbortController();
  const lanes = [0, 1, 2, 3].map(async (lane) => {
    for (const [index, what] of steps.entries()) {
      // Each sandbox has one writer, because its row is locked. Imports and repairs come from every lane.
      const own = 'sandbox' in what ? what.sandbox === lane : index % 4 === lane;
      if (own) await take(history, what);
    }
  });
  const reading = (async () => {
    let compared = 0;
    while (!written.signal.aborted || compared < 5) {
      for (const asked of fc.sample(window, 3)) {
        const { answered, plain } = await bothWays(history.client.org.id, asked);
        expect(answered.rows).toEqual(plain);
        compared += 1;
      }
    }
  })();
  await Promise.all(lanes);
  written.abort();
  await reading;
});

test('concurrent updates of the days of an organization in any order do not wait for each other', async () => {
  const { client, sandboxes } = await begin();
  const orgId = client.org.id;
  const days = ['2028-01-01', '2028-01-02'] as const;
  const writers = Array.from({ length: 24 }, (_, index) => ({
    id: uuidv7(),
    order: index < 12 ? days : days.toReversed(),
  }));
  const { pool } = service.ctx;
  await pool.query(
    `insert into sandboxes select r.* from sandboxes t
     cross join unnest($2::uuid[]) as made (own_id)
     cross join lateral jsonb_populate_record(t, jsonb_build_object('id', own_id, 'name', own_id, 'slug', own_id)) r
     where t.org_id = $1 and t.id = $3`,
    [orgId, writers.map(({ id }) => id), sandboxes[0]],
  );
  const sessions = await Promise.all(writers.map(() => connectAlone(service.database)));
  try {
    await Promise.all(
      writers.map(async ({ id, order }, index) => {
        const session = sessions[index]!;
        await session.query('begin');
        for (const day of order) {
          await session.query(
            `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
             values ($1, gen_random_uuid(), $2, 1, 1, 1, $3::timestamptz, $3::timestamptz + interval '1 hour', 'test')`,
            [orgId, id, `${day}T00:00:00Z`],
          );
          await sleep(100);
        }
        await session.query('commit');
      }),
    );
  } finally {
    await Promise.all(sessions.map((session) => session.end()));
  }
  const { rows } = await pool.query(
    'select day::text, sum(micros)::bigint as micros from usage_totals where org_id = $1 group by day order by day',
    [orgId],
  );
  expect(rows).toEqual(days.map((day) => ({ day, micros: writers.length * 3_600_000_000 })));
});

test('a run closed late takes back its accruals on the days after its end', async () => {
  const history = await begin();
  const [id] = history.sandboxes;
  const days = async (now: Instant) => {
    const asked = { since: BEGIN, until: '2028-03-05T00:00:00.000000Z', now };
    const { answered } = await bothWays(history.client.org.id, asked);
    return answered.rows.map(({ day, vcpu_seconds }: any) => [day.slice(5, 10), vcpu_seconds]);
  };
  await take(history, { kind: 'open', sandbox: 0, at: '2028-02-28T12:00:00.000000Z' });
  expect(await days('2028-03-01T00:00:01.000000Z')).toEqual([
    ['02-28', 129_600],
    ['02-29', 259_200],
    ['03-01', 3],
  ]);
  await take(history, { kind: 'close', sandbox: 0, at: '2028-02-28T12:00:00.000001Z' });
  expect(await days('2028-03-01T00:00:01.000000Z')).toEqual([['02-28', 0.000003]]);
  // The clock is set back before the run, so no usage has happened yet.
  expect(await days('2028-02-28T12:00:00.000000Z')).toEqual([]);
  expect(history.open.get(id!)).toBeUndefined();
});

test('the totals include usage counted by an earlier release, and later usage is added', async () => {
  await withOlderDatabase(9, async (address, pool) => {
    const org = uuidv7();
    await pool.query("insert into orgs values ($1, 'Org', 'org', now(), now())", [org]);
    await pool.query(
      `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at)
       select $1, gen_random_uuid(), 's-' || n, 's-' || n, 'stopped', false, now(), now() from generate_series(1, 3) n`,
      [org],
    );
    const runs = (begin: string) =>
      pool.query(
        `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
         select $1, gen_random_uuid(), id, 3, 700, 5, $2::timestamptz, $2::timestamptz + interval '30 hours', 'test'
         from sandboxes`,
        [org, begin],
      );
    await runs('2028-02-26T12:00:00.000001Z');
    await migrate(address);
    await runs('2028-02-27T01:02:03.000004Z');
    await pool.query("update runs set vcpus = 4 where started_at < '2028-02-27Z'");
    const asked = {
      since: '2028-02-01T00:00:00.000000Z',
      until: '2028-03-01T00:00:00.000000Z',
      now: '2028-02-28T05:00:00.000000Z',
    };
    const days = await computeDays(pool, org, asked);
    expect(days).toHaveLength(3);
    expect(days).toEqual(await plainTotals(pool, org, asked));
  });
});
