import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import { ActiveEventKeys } from '../../../src/audit/events/active-keys.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { SeenHeads } from '../../../src/audit/log/seen-heads.js';
import { openEventKeys } from '../../../src/audit/log/signing-key.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { migrate } from '../../../src/db/migrate.js';
import { now } from '../../../src/lib/instant.js';
import { wholeLog } from '../../support/event-log.js';
import { withOlderDatabase } from '../../support/older-database.js';

const EVENTS = 12_000;

test('the migration to the log appends every older event unchanged', async () => {
  await withOlderDatabase(5, async (address, pool, name) => {
    const orgs = [uuidv7(), uuidv7()];
    for (const id of orgs) {
      await pool.query("insert into orgs values ($1, 'Org', $2, now(), now())", [id, `org-${id}`]);
    }
    // Most events are in one month, some long before it, one in each of many months.
    await pool.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id)
       select ($1::uuid[])[1 + n % 2], gen_random_uuid(),
         case when n <= 60 then timestamptz '2019-01-15 00:00:00Z' + n * interval '1 month'
           else timestamptz '2026-02-01 00:00:00Z' + (n % 40) * interval '1 microsecond' end,
         'test', 'test_event', '{"kind":"system","code":"operator","label":"test"}',
         '{ "b": [1.50, "é"],  "a": null }', 'system', 'operator', case when n % 3 = 0 then gen_random_uuid() end
       from generate_series(1, ${EVENTS}) n`,
      [orgs],
    );
    const columns =
      'org_id, id, occurred_at, category, event_type, actor::text, payload::text, actor_kind, actor_id, resource_id';
    const dump = async () =>
      (await pool.query(`select ${columns} from events order by org_id, occurred_at, id`)).rows;
    const before = await dump();

    expect((await migrate(address))[0]).toBe('0006_event_log.sql');
    expect(await dump()).toEqual(before);
    const { rows } = await pool.query<{ name: string; count: number }>(
      'select tableoid::regclass::text as name, count(*) from events group by 1 order by 1',
    );
    expect(rows).toEqual([
      { name: 'events_2026_02', count: EVENTS - 60 },
      { name: 'events_other', count: 60 },
    ]);
    const eventKeys = openEventKeys({ keys: Buffer.alloc(32, 7).toString('base64') });
    const seenHeads = new SeenHeads(join(tmpdir(), `${name}-heads`));
    const activeKeys = new ActiveEventKeys(eventKeys);
    pool.eventMarker = activeKeys.marker;
    const failed = await sealEvents(
      { pool, eventKeys, activeKeys, seenHeads, now },
      new AbortController().signal,
    );
    expect(failed).toEqual([]);
    for (const org of orgs) {
      expect(await verifyStore(pool, org, { keys: eventKeys().known })).toMatchObject({
        wrong: null,
        unsealed: 0,
        entries: EVENTS / 2,
        unmarked: EVENTS / 2,
        checkpoints: 7,
      });
      const times = (await wholeLog(pool, org, 1_000)).map(({ occurred_at }) => occurred_at);
      expect(times).toEqual(times.toSorted());
    }
  });
});
