import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { lockPartitions } from '../../../src/audit/events/partition-queries.js';
import { dropEmptyPartitions } from '../../../src/audit/events/partitions.js';
import { insertEvent } from '../../../src/audit/events/queries.js';
import { readLog } from '../../../src/audit/log/log-queries.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { verifyFile } from '../../../src/audit/verify/verify-file.js';
import type { Pool } from '../../../src/db/pool.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { run, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { tamper } from '../../support/event-log.js';
import { clientOf, importAll, line } from '../../support/import-lines.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

/** Partitions are created and dropped during reads and writes. This service seals only on request. */
let service: TestService;
let pool: Pool;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  ({ pool } = service.ctx);
});
afterAll(() => service.close());

const never = new AbortController().signal;
const seal = () => sealEvents(service.ctx, never);

async function write({ org }: Client, occurred_at: string): Promise<string> {
  const id = uuidv7();
  const content = {
    org_id: org.id,
    id,
    occurred_at,
    category: 'test',
    event_type: 'test_event',
    actor: operator('test'),
    payload: null,
    resource_id: null,
  };
  await insertEvent(pool, { ...content, actor_kind: 'system', actor_id: 'operator', leaf: null });
  return id;
}

async function makePartition(month: string): Promise<boolean> {
  return inTransaction(
    pool,
    async (tx) => {
      const { rows } = await tx.query<{ made: boolean }>('select make_event_partition($1) as made', [
        `${month}-01T00:00:00Z`,
      ]);
      return rows[0]!.made;
    },
    { unhurried: true },
  );
}

async function partitionOf(id: string): Promise<string> {
  const { rows } = await pool.query<{ name: string }>(
    'select tableoid::regclass::text as name from events where id = $1',
    [id],
  );
  return rows[0]!.name;
}

async function partitions(year: string): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select relname::text as name from pg_inherits join pg_class on oid = inhrelid
     where inhparent = 'events'::regclass and relname like $1 order by 1`,
    [`events_${year}%`],
  );
  return rows.map(({ name }) => name);
}

/** Resolves when a session waits for a lock of this mode on one of these tables. */
const untilWaiting = (tables: readonly string[], mode: string) =>
  until(
    async () => {
      const { rows } = await pool.query<{ count: number }>(
        `select count(*) from pg_locks
         where not granted and mode = $2 and relation = any ($1::regclass[])
           and database = (select oid from pg_database where datname = current_database())`,
        [tables, mode],
      );
      return rows[0]!.count;
    },
    (waiting) => waiting > 0,
  );

const open = new Set<() => Promise<void>>();
afterEach(() => Promise.all([...open].map((commit) => commit())));

/** Runs statements in a transaction that stays open until `commit`, at the latest until the end of the test. */
async function held(...statements: readonly string[]): Promise<{ commit: () => Promise<void> }> {
  const client = await pool.connect();
  await client.query('begin; set local idle_in_transaction_session_timeout = 0');
  for (const statement of statements) await client.query(statement);
  const commit = async () => {
    open.delete(commit);
    await client.query('commit');
    client.release();
  };
  open.add(commit);
  return { commit };
}

test('a month that already has events gets no partition during an import, so open readers still find them', async () => {
  const org = line.org();
  const at = (index: number) => ({ timestamp: `2012-02-03T04:05:${String(index % 60).padStart(2, '0')}Z` });
  await importAll(service, [org, ...[1, 2, 3].map((index) => line.event(org, at(index)))]);
  const client = await clientOf(service, org);
  await seal();
  await inTransaction(
    pool,
    async (tx) => {
      await tx.query('set transaction isolation level repeatable read, read only');
      await lockPartitions(tx);
      await tx.query('select');
      const more = Array.from({ length: 10_000 }, (_, index) => line.event(org, at(index)));
      expect(await importAll(service, more)).toMatchObject({ committed: true });
      const { entries } = await readLog(tx, client.org.id, { afterSeq: 0 }, 100);
      expect(entries.length).toBeGreaterThanOrEqual(3);
      expect(entries.filter(({ event }) => event === null)).toEqual([]);
    },
    { unhurried: true },
  );
  expect(await partitions('2012')).toEqual([]);
  const { status, body, text } = await client.get('/v1/events', { event_type: 'sandbox_started', limit: 1 });
  expect([status, text]).toEqual([200, expect.anything()]);
  expect(await partitionOf(body.data[0].id)).toBe('events_other');
});

test.each(['2013-04', '2033-04'])(
  'an event of %s committed while its partition is being created keeps its place, and no partition appears',
  async (month) => {
    const client = await service.newOrg();
    const writer = await held(
      // A concurrent import found no partition and has not committed.
      `insert into events_other select org_id, gen_random_uuid(), '${month}-05T00:00:00Z', category, event_type, actor, payload, actor_kind, actor_id
       from events where org_id = '${client.org.id}' limit 1`,
    );
    const making = makePartition(month);
    await untilWaiting(['events_other'], 'AccessExclusiveLock');
    await writer.commit();
    expect(await making).toBe(false);
    expect(await partitions(month.slice(0, 4))).toEqual([]);
    // The statement triggers belong to the parent table, so this direct insert bypassed them.
    await tamper(pool, `delete from events_other where occurred_at = '${month}-05T00:00:00Z'`);
    expect(await makePartition(month)).toBe(true);
  },
);

test('an event written while the partition of its month is being created goes into that partition', async () => {
  const client = await service.newOrg();
  const reader = await held('select from events_other limit 1');
  const making = makePartition('2034-04');
  await untilWaiting(['events_other'], 'AccessExclusiveLock');
  const writing = write(client, '2034-04-05T00:00:00.000000Z');
  await untilWaiting(['events'], 'RowExclusiveLock');
  await reader.commit();
  expect(await making).toBe(true);
  expect(await partitionOf(await writing)).toBe('events_2034_04');
});

test.each([
  ['GET /v1/events/export', '2014-05'],
  ['sandkeep events export', '2014-06'],
  ['sandkeep events verify', '2014-07'],
])(
  'the snapshot of %s keeps its events when their month is dropped before they are read',
  async (what, month) => {
    const client = await service.newOrg();
    expect(await makePartition(month)).toBe(true);
    const id = await write(client, `${month}-06T00:00:00.000000Z`);
    await seal();
    const [, , command] = what.split(' ');
    const words = ['events', command!, '--org', client.org.slug, '--database-url', urlOf(service.database)];
    // Each of them locks these tables first.
    const tables = ['event_chains', 'event_drops'];
    const inTheWay = await held(`lock table ${tables.join(', ')} in access exclusive mode`);
    const reading = what.startsWith('GET')
      ? client.get('/v1/events/export').then(({ text }) => text)
      : run([...words, '--data-dir', service.directory]).then(({ code, out, err }) =>
          code === 0 ? out : out + err,
        );
    await untilWaiting(tables, 'AccessShareLock');
    await inTransaction(pool, async (tx) => {
      await tx.query("set local sandkeep.event_retention = 'on'");
      await tx.query('delete from events where id = $1', [id]);
    });
    await dropEmptyPartitions(pool, '2015-01-01T00:00:00.000000Z', never);
    await inTheWay.commit();
    const text = await reading;
    if (command === 'verify') {
      expect(text).toMatch(/: in order: /);
    } else {
      expect(text).toContain(id);
      const trust = { keys: service.ctx.eventKeys().known };
      expect((await verifyFile(Readable.from([Buffer.from(text)]), trust)).verdict.wrong).toBeNull();
    }
    await dropEmptyPartitions(pool, '2015-01-01T00:00:00.000000Z', never);
    expect(await partitions('2014')).toEqual([]);
  },
  180_000,
);

test('retention waits once, not once a month, for a transaction that blocks a month', async () => {
  const months = ['2016-01', '2016-02', '2016-03'];
  for (const month of months) expect(await makePartition(month)).toBe(true);
  const names = months.map((month) => `events_${month.replace('-', '_')}`);
  const reader = await held('lock table events_2016_01 in access share mode');
  await dropEmptyPartitions(pool, '2016-12-01T00:00:00.000000Z', never);
  expect(await partitions('2016')).toEqual(names);
  await reader.commit();
  await dropEmptyPartitions(pool, '2016-12-01T00:00:00.000000Z', never);
  expect(await partitions('2016')).toEqual([]);
});
