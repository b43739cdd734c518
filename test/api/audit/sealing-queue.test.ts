import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { rotateEventKey } from '../../../src/audit/log/signing-key.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import type { Sql } from '../../../src/db/pool.js';
import type { Client } from '../../support/client.js';
import { wholeLog } from '../../support/event-log.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

const COLUMNS = 'org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id';
const VALUES = `gen_random_uuid(), now(), 'test', 'test_event', '{"kind":"system","code":"test","label":"test"}', 'null',
  'system', 'test'`;

test("a write does not wait for the sealing of another organization's long history", async () => {
  const { pool } = service.ctx;
  const [long, short] = [await service.newOrg(), await service.newOrg()];
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  await seal();
  await pool.query(`insert into events (${COLUMNS}) select $1, ${VALUES} from generate_series(1, 3500)`, [
    long.org.id,
  ]);
  // This event arrives with the first batch of the other organization, after the sealer listed the organizations with
  // unsealed events.
  await pool.query(`
    create function write_meanwhile() returns trigger language plpgsql as $$
    begin
      insert into events (${COLUMNS}) select '${short.org.id}', ${VALUES}
      where not exists (select from events where org_id = '${short.org.id}' and event_type = 'test_event');
      return null;
    end $$;
    create trigger write_meanwhile after insert on event_log for each statement execute function write_meanwhile()`);
  expect(await seal()).toEqual([]);
  const { rows } = await pool.query<{ org_id: string; transaction: number; entries: number }>(
    `select org_id, xmin::text::bigint as transaction, count(*) as entries from event_log l
     where exists (select from events e where e.org_id = l.org_id and e.id = l.event_id and e.event_type = 'test_event')
     group by 1, 2 order by 2`,
  );
  const sealed = rows.map(({ org_id, entries }) => [org_id === long.org.id ? 'long' : 'short', entries]);
  expect(sealed).toContainEqual(['short', 1]);
  expect(sealed.at(-1)).toEqual(['long', 500]);
  expect(await pool.query('select from unsealed_events')).toMatchObject({ rowCount: 0 });
});

test('an effect follows its cause in the log, even when the cause commits between two batches', async () => {
  const { pool } = service.ctx;
  const { org } = await service.newOrg();
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  await seal();
  const write = (sql: Sql, type: string, count = 1) =>
    sql.query(
      `insert into events (${COLUMNS})
       select $1, gen_random_uuid(), now(), 'test', $2, '{"kind":"system","code":"test","label":"test"}', 'null', 'system', 'test'
       from generate_series(1, $3)`,
      [org.id, type, count],
    );
  // The sealer waits in the middle of a batch, with its events read.
  await pool.query(`
    create function wait_for_test() returns trigger language plpgsql as $$
    begin
      perform pg_advisory_xact_lock(4711);
      return null;
    end $$;
    create trigger wait_for_test after insert on event_log for each statement execute function wait_for_test()`);
  const [first, holder] = [await pool.connect(), await pool.connect()];
  try {
    await first.query('begin');
    await write(first, 'cause');
    await write(pool, 'filler', 1500);
    await holder.query('select pg_advisory_lock(4711)');
    const sealing = seal();
    await until(
      () =>
        pool.query(
          "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'",
        ),
      ({ rowCount }) => rowCount === 1,
    );
    await first.query('commit');
    await write(pool, 'effect');
    await holder.query('select pg_advisory_unlock(4711)');
    expect(await sealing).toEqual([]);
  } finally {
    // These connections are closed: their transactions may still be open.
    first.release(true);
    holder.release(true);
    await pool.query('drop function wait_for_test cascade');
  }
  await seal();
  const log = await wholeLog(pool, org.id);
  const types = log.map(({ event }) => event!.event_type).filter((type) => /cause|effect/.test(type));
  expect(types).toEqual(['cause', 'effect']);
});

test('an event inserted ahead of the queue is sealed like any other, and reported as inserted', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  await seal();
  await pool.query('alter table unsealed_events drop constraint unsealed_events_place_check');
  await pool.query(`insert into events (${COLUMNS}) select $1, ${VALUES}`, [client.org.id]);
  await pool.query(
    `with taken as (delete from unsealed_events returning *)
     insert into unsealed_events overriding system value
     select org_id, -5, occurred_at, event_id, 'infinity', event_type, category from taken`,
  );
  const trust = { keys: service.ctx.eventKeys().known };
  expect((await verifyStore(pool, client.org.id, trust)).wrong).toMatch(
    /^the event [0-9a-f-]{36} has a place in the queue that the service does not assign/,
  );
  expect(await seal()).toEqual([]);
  expect((await verifyStore(pool, client.org.id, trust)).wrong).toMatch(
    /was inserted: it has no mark of the event keys/,
  );
});

test('a new key signs every log at once, and adds one event to each', async () => {
  const [client, other] = [await service.newOrg(), await service.newOrg()];
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  await seal();
  const before = service.ctx.eventKeys().current.id;
  rotateEventKey(join(service.directory, 'event-keys'));
  const after = await until(
    () => Promise.resolve(service.ctx.eventKeys().current.id),
    (id) => id !== before,
  );
  for (const name of ['one', 'two']) {
    await client.post('/v1/volumes', { name });
    await seal();
  }
  const rotations = async (of: Client) =>
    (await of.get('/v1/events', { event_type: 'event_key_rotated' })).body.data.map(
      ({ payload }: any) => payload,
    );
  expect(await rotations(client)).toEqual([{ key_id: after, previous_key_id: before }]);
  expect(await rotations(other)).toEqual(await rotations(client));
  const trust = { keys: service.ctx.eventKeys().known };
  for (const { org } of [client, other]) {
    expect((await verifyStore(service.ctx.pool, org.id, trust)).wrong).toBeNull();
  }
});
