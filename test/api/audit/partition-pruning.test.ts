import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { getEvent, insertEvent } from '../../../src/audit/events/queries.js';
import { readEventFilter, type FilterQuery } from '../../../src/audit/list/filter.js';
import { listEvents } from '../../../src/audit/list/list.js';
import { readLog } from '../../../src/audit/log/log-queries.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import type { Pool } from '../../../src/db/pool.js';
import { inTransaction, type Transaction } from '../../../src/db/transaction.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
let pool: Pool;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  ({ pool } = service.ctx);
  for (let month = 1; month <= 12; month += 1) {
    const name = String(month).padStart(2, '0');
    // Every third month has no partition of its own.
    if (month % 3 !== 0) await pool.query(`select make_event_partition('2030-${name}-01T00:00:00Z')`);
  }
});
afterAll(() => service.close());

const seal = () => sealEvents(service.ctx, new AbortController().signal);

async function write({ org }: Client, occurred_at: string, event_type = 'test_event'): Promise<string> {
  const id = uuidv7();
  const content = {
    org_id: org.id,
    id,
    occurred_at,
    category: event_type.split('_')[0]!,
    event_type,
    actor: operator('test'),
    payload: null,
    resource_id: null,
  };
  await insertEvent(pool, { ...content, actor_kind: 'system', actor_id: 'operator', leaf: null });
  return id;
}

/** The partitions that `work` opens. Planning a query locks each partition in its plan until the transaction ends. */
async function opened(work: (tx: Transaction) => Promise<unknown>): Promise<string[]> {
  return inTransaction(pool, async (tx) => {
    await work(tx);
    const { rows } = await tx.query<{ name: string }>(
      `select c.relname as name from pg_locks l
       join pg_inherits i on i.inhrelid = l.relation and i.inhparent = 'events'::regclass
       join pg_class c on c.oid = l.relation
       where l.pid = pg_backend_pid() order by 1`,
    );
    return rows.map(({ name }) => name);
  });
}

test('a reader of events opens only the partitions of the months that have them', async () => {
  const client = await service.newOrg();
  const orgId = client.org.id;
  const [february, april] = [
    await write(client, '2030-02-10T00:00:00.000000Z', 'rare_event'),
    await write(client, '2030-04-10T00:00:00.000000Z'),
  ];
  await write(client, '2030-04-11T00:00:00.000000Z');
  await seal();
  for (const day of [10, 11]) await write(client, `2030-07-${day}T00:00:00.000000Z`);
  const page = (query: FilterQuery, limit: number) =>
    opened((tx) => {
      const sources = { pool: tx as unknown as Pool, reads: tx, now: () => '2030-07-20T00:00:00.000000Z' };
      return listEvents(sources, orgId, readEventFilter(query), undefined, limit);
    });
  // This event is not sealed yet.
  expect(await page({}, 1)).toEqual(['events_2030_07']);
  expect(await page({ event_type: ['test_event'] }, 1)).toEqual(['events_2030_07']);
  expect(await page({ since: '2030-07-11T00:00:00Z' }, 5)).toEqual(['events_2030_07']);
  expect(await page({ until: '2030-04-30T00:00:00Z' }, 1)).toEqual(['events_2030_04']);
  expect(await page({ until: '2030-05-03T00:00:00Z' }, 1)).toEqual(['events_2030_04', 'events_2030_05']);
  expect(await page({ until: '2030-05-30T00:00:00Z', since: '2030-05-10T00:00:00Z' }, 1)).toEqual([
    'events_2030_05',
  ]);
  // The query reads further partitions only for events that these do not have.
  expect(await page({ event_type: ['rare_event'] }, 5)).toContain('events_2030_02');
  expect(await opened((tx) => getEvent(tx, orgId, february))).toEqual(['events_2030_02']);
  const seqs = await pool.query<{ seq: number }>(
    'select seq from event_log where org_id = $1 and event_id = any ($2) order by seq',
    [orgId, [february, april]],
  );
  const [first, second] = seqs.rows.map(({ seq }) => seq);
  expect(await opened((tx) => readLog(tx, orgId, { afterSeq: first! - 1 }, 1))).toEqual(['events_2030_02']);
  expect(await opened((tx) => readLog(tx, orgId, { afterSeq: second! - 1 }, 2))).toEqual(['events_2030_04']);
});

test('a page of few events in many months is the same as from an unpartitioned table', async () => {
  const client = await service.newOrg();
  const types = ['test_event', 'rare_event', 'other_event'];
  const at = (micro: number) =>
    `20${30 + Math.floor(micro / 12)}-${String((micro % 12) + 1).padStart(2, '0')}-01T00:00:00.000000Z`;
  const write36 = async (from: number, to: number) => {
    for (let month = from; month < to; month += 1) {
      for (let n = 0; n <= month % 3; n += 1) await write(client, at(month), types[(month + n) % 3]);
    }
  };
  await write36(0, 20);
  await seal();
  await write36(15, 36);
  await fc.assert(
    fc.asyncProperty(
      fc.record(
        { event_type: fc.subarray([...types, '!rare_event', 'webhook_deleted']) },
        { requiredKeys: [] },
      ),
      fc.nat(35),
      fc.nat(35),
      fc.integer({ min: 1, max: 30 }),
      async (query, one, other, limit) => {
        const [since, until] = [at(Math.min(one, other)), at(Math.max(one, other))];
        const { event_type = [] } = query;
        const include = event_type.filter((type) => !type.startsWith('!'));
        const { rows } = await pool.query<{ id: string }>(
          `select id from events where org_id = $1 and occurred_at between $2 and $3
             and ($4 or event_type = any ($5)) and not ($6 and event_type = 'rare_event')
           order by occurred_at desc, id desc`,
          [client.org.id, since, until, include.length === 0, include, event_type.includes('!rare_event')],
        );
        const found: string[] = [];
        for (let cursor: string | undefined; ;) {
          const { body } = await client.get('/v1/events', {
            since,
            until,
            limit,
            ...(event_type.length > 0 ? { event_type } : {}),
            ...(cursor === undefined ? {} : { cursor }),
          });
          found.push(...body.data.map(({ id }: { id: string }) => id));
          if (!body.has_more) break;
          cursor = body.next_cursor;
        }
        expect(found).toEqual(rows.map(({ id }) => id));
      },
    ),
    { numRuns: 60 },
  );
});

test('an event can be found by its id before and after sealing, but not by another organization', async () => {
  const [client, other] = [await service.newOrg(), await service.newOrg()];
  const id = await write(client, '9999-12-31T23:59:59.999999Z');
  for (const step of [async () => undefined, seal]) {
    await step();
    expect((await client.get(`/v1/events/${id}`)).body.id).toBe(id);
    expect((await other.get(`/v1/events/${id}`)).status).toBe(404);
    expect((await client.get('/v1/events', { limit: 1 })).body.data[0].id).toBe(id);
  }
  expect((await client.get(`/v1/events/${uuidv7()}`)).status).toBe(404);
});
