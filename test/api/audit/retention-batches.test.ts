import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { leafOf } from '../../../src/audit/events/hash-chain.js';
import { createPartitionsAhead } from '../../../src/audit/events/partitions.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { enforceRetention } from '../../../src/audit/retention/enforce.js';
import { setRetention } from '../../../src/audit/retention/set.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import type { Pool } from '../../../src/db/pool.js';
import { instantFromMicros, microsOf } from '../../../src/lib/instant.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

/** Retention during reads and writes. This service seals and drops events only on request. */
let service: TestService;
let pool: Pool;
let today = '2031-06-15T12:00:00.000000Z';
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => today });
  ({ pool } = service.ctx);
});
afterAll(() => service.close());

const never = new AbortController().signal;
const seal = () => sealEvents(service.ctx, never);
const enforce = () => enforceRetention(service.ctx, never);
const keep = ({ org }: Client, months: number | null) =>
  setRetention(service.ctx, org.id, months, operator('test'));
const verdict = async ({ org }: Client) =>
  (await verifyStore(pool, org.id, { keys: service.ctx.eventKeys().known })).wrong;

/** Writes events one microsecond apart, as an import does. */
async function write({ org }: Client, month: string, count: number): Promise<void> {
  await pool.query('select make_event_partition($1)', [`${month}-01T00:00:00Z`]);
  const first = microsOf(`${month}-10T00:00:00.000000Z`);
  const actor = operator('test');
  const events = Array.from({ length: count }, (_, index) => {
    const content = {
      org_id: org.id,
      id: uuidv7(),
      occurred_at: instantFromMicros(first + BigInt(index)),
      category: 'test',
      event_type: 'test_event',
      actor,
      payload: null,
      resource_id: null,
    };
    const { id, occurred_at } = content;
    return { id, occurred_at, mark: service.ctx.eventKeys().mark(leafOf(content)) };
  });
  await pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, mark)
     select $1, id, occurred_at, 'test', 'test_event', $2, 'null', 'system', 'operator', mark
     from unnest($3::uuid[], $4::timestamptz[], $5::bytea[]) as e (id, occurred_at, mark)`,
    [
      org.id,
      JSON.stringify(actor),
      events.map(({ id }) => id),
      events.map(({ occurred_at }) => occurred_at),
      events.map(({ mark }) => mark),
    ],
  );
  await seal();
}

async function left({ org }: Client, month: string): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*) from events where org_id = $1 and to_char(occurred_at, 'YYYY-MM') = $2`,
    [org.id, month],
  );
  return rows[0]!.count;
}

async function partitions(): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'events'::regclass order by 1`,
  );
  return rows.map(({ name }) => name);
}

/** A transaction that has all of `events` open, as an export of an old range has. */
async function reader(): Promise<{ leave: () => Promise<void> }> {
  const client = await pool.connect();
  await client.query('begin');
  await client.query('select from events limit 1');
  return {
    async leave() {
      await client.query('commit');
      client.release();
    },
  };
}

test('retention removes several batches, and drops the month once it is empty', async () => {
  const client = await service.newOrg();
  await write(client, '2030-01', 11_000);
  await write(client, '2031-05', 10);
  await keep(client, 3);
  await enforce();
  expect(await left(client, '2030-01')).toBe(0);
  expect(await left(client, '2031-05')).toBe(10);
  expect(await partitions()).not.toContain('events_2030_01');
  expect(await verdict(client)).toBeNull();
});

test('a long-running reader does not delay the deletion of events, only the drop of their month', async () => {
  const client = await service.newOrg();
  await write(client, '2030-02', 10);
  await keep(client, 3);
  const { leave } = await reader();
  try {
    await enforce();
    expect(await left(client, '2030-02')).toBe(0);
    // No writer queues for the lock that retention waits for.
    expect((await client.post('/v1/volumes', { name: 'data' })).status).toBe(200);
    expect(await partitions()).toContain('events_2030_02');
    today = '2031-07-15T12:00:00.000000Z';
    await createPartitionsAhead(service.ctx);
  } finally {
    await leave();
  }
  await enforce();
  await createPartitionsAhead(service.ctx);
  expect(await partitions()).not.toContain('events_2030_02');
  expect(await partitions()).toContain('events_2031_09');
  await seal();
  expect(await verdict(client)).toBeNull();
});

test('two concurrent processes drop each event and each month once', async () => {
  const clients = await Promise.all([service.newOrg(), service.newOrg(), service.newOrg()]);
  for (const client of clients) {
    for (const month of ['2030-03', '2030-04', '2030-05']) await write(client, month, 50);
    await keep(client, 3);
  }
  await Promise.all([enforce(), enforce(), enforce()]);
  await enforce();
  await seal();
  for (const client of clients) {
    expect(await verdict(client)).toBeNull();
    const { body } = await client.get('/v1/events', { event_type: 'events_dropped' });
    // The creation of the organization left some events, by the clock of this machine.
    expect(body.data.map(({ payload }: any) => payload.count >= 150)).toEqual([true]);
  }
  expect((await partitions()).filter((name) => name.startsWith('events_2030'))).toEqual([]);
});

test('events that a signed but unfinished drop names are removed after a later, smaller drop', async () => {
  const client = await service.newOrg();
  await write(client, '2031-02', 10);
  await write(client, '2031-06', 10);
  await keep(client, 1);
  // Retention signs the drop, and stops before it removes anything.
  const stopping = new AbortController();
  const now = () => {
    stopping.abort();
    return today;
  };
  await pool.query('update event_chains set retention_months = null where org_id <> $1', [client.org.id]);
  await enforceRetention({ ...service.ctx, now }, stopping.signal);
  expect(await left(client, '2031-02')).toBe(10);
  // Then the retention grows, and an import adds events that are too old even for it.
  await write(client, '2029-02', 10);
  await keep(client, 12);
  await enforce();
  await seal();
  expect(await left(client, '2031-02')).toBe(0);
  expect(await left(client, '2029-02')).toBe(0);
  expect(await left(client, '2031-06')).toBe(10);
  expect(await verdict(client)).toBeNull();
  const { rows } = await pool.query<{ base_seq: number }>(
    'select base_seq from event_drops where org_id = $1 order by seq',
    [client.org.id],
  );
  const bases = rows.map(({ base_seq }) => base_seq);
  expect(bases).toHaveLength(2);
  expect(bases).toEqual(bases.toSorted((a, b) => a - b));
});
