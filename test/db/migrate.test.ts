import pg from 'pg';
import { inject, expect, test } from 'vitest';
import { migrate } from '../../src/db/migrate.js';
import { connectionConfig, type Pool } from '../../src/db/pool.js';
import { prepareRequestRole, REQUEST_ROLE } from '../../src/db/request-role.js';
import { sleep } from '../../src/lib/sleep.js';
import { cloneTemplate } from '../support/database.js';
import { withOlderDatabase } from '../support/older-database.js';

test('a migration may take longer than any other statement', async () => {
  const { address, drop } = await cloneTemplate(inject('server'));
  // The lock wait of a second migrator has no limit, like a long migration.
  const another = new pg.Client(connectionConfig(address));
  await another.connect();
  try {
    await another.query("select pg_advisory_lock(x'53616e64'::int)");
    const { rows } = await another.query('show statement_timeout');
    expect(rows[0].statement_timeout).toBe('30s');
    const migrating = migrate(address);
    migrating.catch(() => undefined);
    await sleep(31_000);
    await another.query("select pg_advisory_unlock(x'53616e64'::int)");
    expect(await migrating).toEqual([]);
  } finally {
    await another.end();
    await drop();
  }
});

test('the previous release works between two migrations', async () => {
  const id = '01a201dc-f863-70ae-b5c8-be5bc237d78d';
  await withOlderDatabase(9, async (address, pool) => {
    await prepareRequestRole(pool);
    await pool.query(`
      insert into orgs values ('${id}', 'x', 'x', now(), now());
      insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, run_spec, runtime)
      values ('${id}', '${id}', 'a', 'a', 'running', false, now(), now(), '{}', 'simulated');
      insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at)
      values ('${id}', '${id}', '${id}', 1, 512, 0, now() - interval '1 minute')`);
    const before = new pg.Client(connectionConfig(address, `-c role=${REQUEST_ROLE}`));
    await before.connect();
    await before.query(`select set_config('sandkeep.org_id', '${id}', false)`);
    // Each lock blocks the migration after the one under test.
    const [holdsRuns, holdsLog] = [await holding(pool, 'runs'), await holding(pool, 'event_log')];
    const migrating = migrate(address);
    migrating.catch(() => undefined);
    try {
      await applied(pool, 10);
      await before.query("update sandboxes set status = 'stopped'");
      await holdsRuns();
      await applied(pool, 11);
      await before.query("update runs set stopped_at = now(), end_reason = 'stopped'");
    } finally {
      await holdsRuns();
      await holdsLog();
      await before.end();
    }
    expect(await migrating).toContain('0012_event_log_times.sql');
  });
});

test('the migration of the event indexes does not block others during an export', async () => {
  await withOlderDatabase(12, async (address, pool) => {
    const exporting = await holding(pool, 'events', 'access share');
    const migrating = migrate(address);
    migrating.catch(() => undefined);
    await applied(pool, 13);
    try {
      const waits: number[] = [];
      for (let read = 0; read < 30; read += 1) {
        const begun = performance.now();
        await pool.query('select from events limit 1');
        waits.push(performance.now() - begun);
        await sleep(50);
      }
      // The migration waits for a tenth of a second at a time, and so does a read queued after it. The rest is for a
      // busy machine. A read that waits for the end of the export ends with its time limit of 30 s.
      expect(waits.toSorted((a, b) => a - b)[waits.length / 2]).toBeLessThan(10_000);
    } finally {
      await exporting();
    }
    expect((await migrating).slice(0, 2)).toEqual(['0013_event_places.sql', '0014_fewer_event_indexes.sql']);
    const { rows } = await pool.query<{ name: string }>(
      "select indexname as name from pg_indexes where tablename = 'events' order by 1",
    );
    expect(rows.map(({ name }) => name)).toEqual([
      'events_of_actor',
      'events_of_resource',
      'events_of_type',
      'events_pkey',
    ]);
  });
});

/** Locks a table against migrations until the returned function is called. */
async function holding(
  pool: Pool,
  table: string,
  mode: 'row exclusive' | 'access share' = 'row exclusive',
): Promise<() => Promise<void>> {
  const client = await pool.connect();
  await client.query(`begin; lock table ${table} in ${mode} mode`);
  let held = true;
  return async () => {
    if (!held) return;
    held = false;
    await client.query('commit');
    client.release();
  };
}

async function applied(pool: Pool, number: number): Promise<void> {
  for (;;) {
    const { rowCount } = await pool.query('select from schema_migrations where number = $1', [number]);
    if (rowCount === 1) return;
    await sleep(20);
  }
}

test('a specification with the mark of an earlier release gets a format, any other none', async () => {
  await withOlderDatabase(15, async (address, pool) => {
    const id = '01a201dc-f863-70ae-b5c8-be5bc237d78d';
    await pool.query(`
      insert into orgs values ('${id}', 'x', 'x', now(), now());
      insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, spec)
      select '${id}', gen_random_uuid(), name, name, 'stopped', false, now(), now(), spec::json
      from (values ('marked', E'\\t{"labels":{}}'), ('other', ' {"labels":{}}'), ('none', null)) as s (name, spec)`);
    await migrate(address);
    const formats = async () => {
      const { rows } = await pool.query('select name, spec::text, spec_format from sandboxes order by name');
      return rows.map(({ name, spec, spec_format }) => [name, spec, spec_format]);
    };
    expect(await formats()).toEqual([
      ['marked', '{"labels":{}}', 1],
      ['none', null, null],
      ['other', ' {"labels":{}}', null],
    ]);
    // The release before knows no formats.
    await pool.query(`update sandboxes set spec = E'\\t{"labels":{"a":"b"}}' where name = 'marked'`);
    expect((await formats())[0]).toEqual(['marked', '\t{"labels":{"a":"b"}}', null]);
  });
});
