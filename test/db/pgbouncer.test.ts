import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { listenForChanges } from '../../src/db/changes.js';
import { connectAlone } from '../../src/db/pool.js';
import { openRequests } from '../../src/db/request-connections.js';
import { makeClient } from '../support/client.js';
import { startPgBouncer, whyNoPgBouncer, type PgBouncer } from '../support/pgbouncer.js';
import { PostgresServer, whyNoServers } from '../support/postgres-server.js';
import { until, untilStatus } from '../support/polling.js';
import { cleanUp, launch, makeFolder, ready, stop } from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';

const reason = whyNoServers() ?? whyNoPgBouncer();
if (reason !== undefined) console.warn(`the tests of PgBouncer are SKIPPED: ${reason}`);

const IGNORE = { ignore_startup_parameters: 'options' };

describe.skipIf(reason !== undefined)(`PgBouncer${reason ? ` — SKIPPED: ${reason}` : ''}`, () => {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-bouncer-'));
  let server: PostgresServer;
  let bouncer: PgBouncer | undefined;

  beforeAll(async () => {
    chmodSync(root, 0o755);
    server = await PostgresServer.make(root, 'server');
    await server.start();
  });
  afterEach(async () => {
    await bouncer?.close();
    bouncer = undefined;
  });
  afterAll(async () => {
    await server.kill();
    rmSync(root, { recursive: true, force: true });
  });

  const serveOn = (url: string, dataDir: string) =>
    launch([
      'serve',
      '--json',
      '--port',
      '0',
      '--runtime',
      'simulated',
      '--log-level',
      'error',
      '--data-dir',
      dataDir,
      '--database-url',
      url,
    ]);

  test('in transaction mode is refused at the start, before anything is written', async () => {
    bouncer = await startPgBouncer(server, root, { pool_mode: 'transaction', ...IGNORE });
    const folder = makeFolder();
    const service = serveOn(bouncer.urlOf('postgres'), folder);
    const refusal =
      /^sandkeep: .* pooler in transaction or statement mode.*Set "pool_mode = session", or name PostgreSQL/;
    expect([(await service.exited).code, service.err()]).toEqual([1, expect.stringMatching(refusal)]);
    expect(service.err()).not.toContain('    at ');
    expect(await server.query("select to_regclass('schema_migrations') as made")).toEqual([{ made: null }]);
    await cleanUp(folder);
  });

  test.each([
    ['transaction', { server_round_robin: '1' }],
    ['statement', {}],
  ])('in %s mode is refused to every connection: %j', async (mode, settings) => {
    bouncer = await startPgBouncer(server, root, { pool_mode: mode, ...IGNORE, ...settings });
    const url = bouncer.urlOf('postgres');
    // Other clients leave several connections to the server, among which the rounds of PgBouncer go. All of them wait
    // for one lock, so that none takes over the connection of another.
    const holder = new pg.Client({ connectionString: server.url });
    await holder.connect();
    await holder.query('select pg_advisory_lock(1)');
    const waiting = [1, 2, 3].map(async () => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      await client.query('select pg_advisory_xact_lock_shared(1)');
      await client.end();
    });
    await until(
      () => server.query("select from pg_locks where locktype = 'advisory' and not granted"),
      (found) => found.length === waiting.length,
    );
    await holder.end();
    await Promise.all(waiting);
    await expect(connectAlone({ url })).rejects.toThrow(/pooler in transaction or statement mode/);
  });

  test('that refuses the settings of a session is refused with the setting that it lacks', async () => {
    bouncer = await startPgBouncer(server, root, { pool_mode: 'session' });
    const connecting = connectAlone({ url: bouncer.urlOf('postgres') });
    await expect(connecting).rejects.toThrow(
      /unsupported startup parameter.*ignore_startup_parameters = options/,
    );
  });

  test('in session mode serves everything, with the role and the settings of each session', async () => {
    bouncer = await startPgBouncer(server, root, { pool_mode: 'session', ...IGNORE });
    await server.query('create database served');
    const address = { url: bouncer.urlOf('served') };
    const folder = makeFolder();
    const service = await ready(serveOn(address.url, folder), folder);
    const client = makeClient(service.url, {
      org: { id: '', name: '', slug: '' },
      key: service.firstKey!,
      keyId: '',
    });
    const { body } = await client.post('/v1/sandboxes', smallRequest('one'), { start: true });
    await untilStatus(client, body.id, 'running');
    expect((await client.get('/v1/events')).body.data.length).toBeGreaterThan(2);
    expect((await client.delete(`/v1/sandboxes/${body.id}`)).status).toBe(200);

    const alone = await connectAlone(address);
    const { rows } = await alone.query(
      "select current_setting('timezone') as zone, current_setting('search_path') as path, current_setting('jit') as jit",
    );
    expect(rows).toEqual([{ zone: 'UTC', path: 'public', jit: 'off' }]);
    const requests = openRequests(address, true, () => undefined);
    const changes = listenForChanges(address, () => undefined);
    const served = requests.of('01a201dc-f863-70ae-b5c8-be5bc237d78d');
    const whoAmI = 'select current_user::text as name, count(*)::int as seen from sandboxes group by 1';
    for (const sql of [served.pool, served.reads]) {
      expect((await sql.query('select current_user::text as name')).rows).toEqual([
        { name: 'sandkeep_requests' },
      ]);
      // Another organization sees none of the sandboxes.
      expect((await sql.query(whoAmI)).rows).toEqual([]);
    }
    await until(
      () => Promise.resolve(changes.live),
      (live) => live,
    );
    await changes.close();
    await requests.close();
    await alone.end();
    expect(await stop(service)).toBe(0);
    await cleanUp(folder);
  });
});
