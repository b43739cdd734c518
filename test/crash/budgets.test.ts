import { afterEach, expect, inject, test } from 'vitest';
import { openPool, type Pool } from '../../src/db/pool.js';
import { makeClient, type Client } from '../support/client.js';
import { urlOf } from '../support/cli.js';
import { cloneTemplate } from '../support/database.js';
import { until } from '../support/polling.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';

let folder: string | undefined;
afterEach(async () => {
  if (folder !== undefined) await cleanUp(folder);
  folder = undefined;
});

/** A session waits here in the middle of its transaction, until it is ended. */
async function holdAt(pool: Pool, table: string, operation: 'insert' | 'update'): Promise<void> {
  await pool.query(
    `create function hold() returns trigger language plpgsql as $$ begin perform pg_sleep(600); return null; end $$;
     create trigger hold after ${operation} on ${table} for each statement execute function hold()`,
  );
}

const heldSessions = async (pool: Pool) =>
  (
    await pool.query(
      `select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`,
    )
  ).rowCount;

/** The server ends the transaction of a killed client once it notices. */
async function release(pool: Pool, table: string): Promise<void> {
  await pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()`,
  );
  await until(
    () => heldSessions(pool),
    (count) => count === 0,
  );
  await pool.query(`drop trigger hold on ${table}; drop function hold()`);
}

test.each([
  ['between the notice of a threshold and its event', 'budget_notices', 'insert'],
  ['between the event and the commit', 'budgets', 'update'],
] as const)('a kill %s leaves exactly one event of each threshold', async (_, table, operation) => {
  const dataDir = makeFolder();
  folder = dataDir;
  const { address, drop } = await cloneTemplate(inject('server'));
  const pool = openPool(address, () => undefined);
  const serve = async (): Promise<Served> => {
    const args = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'error'];
    return ready(
      launch(['serve', ...args, '--data-dir', dataDir, '--database-url', urlOf(address)]),
      dataDir,
    );
  };
  try {
    let service = await serve();
    const key = service.firstKey!;
    const connect = (): Client =>
      makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
    let client = connect();
    await client.post('/v1/sandboxes', smallRequest('runs'), { start: true, wait_for: 'running' });
    const budget = {
      name: 'small',
      scope: { type: 'organization' },
      measure: 'sandbox_hours',
      limit: '0.000001',
    };
    await holdAt(pool, table, operation);
    expect((await client.post('/v1/budgets', { ...budget, action: 'warn' })).status).toBe(200);
    await until(
      () => heldSessions(pool),
      (count) => count === 1,
    );
    kill('SIGKILL', service.pid);
    await service.exited;
    await release(pool, table);
    service = await serve();
    client = connect();
    const query = { event_type: 'budget_threshold_reached', limit: 100 };
    const thresholds = async () =>
      (await client.get('/v1/events', query)).body.data.map(({ payload }: any) => payload.threshold);
    await until(thresholds, (found) => found.length > 0);
    // Another check finds nothing new.
    const checked = async () =>
      (await pool.query<{ until: string }>('select checked_until as until from budgets')).rows[0]!.until;
    const before = await checked();
    await until(checked, (last) => last > before);
    expect(await thresholds()).toEqual([100, 80, 50]);
    await stop(service);
  } finally {
    await pool.end();
    await drop();
  }
});
