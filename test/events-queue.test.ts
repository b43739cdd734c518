import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sealEvents } from '../src/events/seal.js';
import { rotateEventKey } from '../src/events/signing-key.js';
import { verifyStore } from '../src/events/verify-store.js';
import type { Client } from './support/client.js';
import { startTestService, type TestService } from './support/service.js';
import { until } from './support/until.js';

/** One that seals when it is told to. */
let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

const COLUMNS = 'org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id';
const VALUES = `gen_random_uuid(), now(), 'test', 'test_event', '{"kind":"system","code":"test","label":"test"}', 'null',
  'system', 'test'`;

test('who writes while the history of another organization is sealed does not wait for the end of it', async () => {
  const { pool } = service.ctx;
  const [long, short] = [await service.newOrg(), await service.newOrg()];
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  await seal();
  await pool.query(`insert into events (${COLUMNS}) select $1, ${VALUES} from generate_series(1, 3500)`, [
    long.org.id,
  ]);
  // It comes with the first batch of the other, so after the look at who has something to seal.
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

test('a new key that signs leaves one event in each log that goes on', async () => {
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
  expect(await rotations(other)).toEqual([]);
  const trust = { keys: service.ctx.eventKeys().known };
  expect((await verifyStore(service.ctx.pool, client.org.id, trust)).wrong).toBeNull();
});
