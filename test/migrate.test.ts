import pg from 'pg';
import { inject, expect, test } from 'vitest';
import { migrate } from '../src/db/migrate.js';
import { connectionConfig } from '../src/db/pool.js';
import { sleep } from '../src/lib/sleep.js';
import { cloneTemplate } from './support/database.js';

test('a migration may take longer than any other statement', async () => {
  const { address, drop } = await cloneTemplate(inject('server'));
  // What one waits for who migrates while another does: as good as a long one of its own.
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
}, 90_000);
