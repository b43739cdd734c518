import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { announceLog, listenForChanges } from '../../src/db/changes.js';
import { clusterOf } from '../../src/db/external/cluster.js';
import { migrate } from '../../src/db/migrate.js';
import { connectAlone, openPool, type Sql } from '../../src/db/pool.js';
import { openRequests } from '../../src/db/request-connections.js';
import { inTransaction } from '../../src/db/transaction.js';
import { makeSynchronous, PostgresServer, whyNoServers } from '../support/postgres-server.js';
import { until } from '../support/polling.js';
import { launch } from '../support/processes.js';

const ORG = '01a201dc-f863-70ae-b5c8-be5bc237d78d';

const reason = whyNoServers();
if (reason !== undefined) console.warn(`the tests of several database servers are SKIPPED: ${reason}`);

/** The tests share the servers, and each begins with the roles that the previous one left. */
describe.skipIf(reason !== undefined)(`several servers${reason ? ` — SKIPPED: ${reason}` : ''}`, () => {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-servers-'));
  const all: PostgresServer[] = [];
  let [one, two]: PostgresServer[] = [];

  /** Each name is a cluster of its own, as a new process has it. */
  const urlOf = (name: string, ...servers: PostgresServer[]) => {
    const places = servers.map(({ port }) => `127.0.0.1:${port}`).join(',');
    return { url: `postgres://postgres@${places}/postgres?fallback_application_name=${name}` };
  };

  beforeAll(async () => {
    chmodSync(root, 0o755);
    one = await PostgresServer.make(root, 'one');
    all.push(one);
    await one.start();
    two = await PostgresServer.copy(one, root, 'two');
    all.push(two);
    await two.start();
    await makeSynchronous(one);
    await migrate(urlOf('first', one));
  });
  afterAll(async () => {
    for (const server of all) await server.kill();
    rmSync(root, { recursive: true, force: true });
  });

  test('a standby alone is refused by name', async () => {
    const { url } = urlOf('cli', two!);
    const command = launch(['org', 'list', '--database-url', url, '--data-dir', join(root, 'none')]);
    expect([(await command.exited).code, command.err()]).toEqual([
      1,
      `sandkeep: cannot reach the database: 127.0.0.1:${two!.port} is a standby or read-only\n`,
    ]);
  });

  test('each kind of connection finds the primary, and follows a promotion without a restart', async () => {
    const address = urlOf('kinds', two!, one!);
    const pool = openPool(address, () => undefined);
    const requests = openRequests(address, true, () => undefined);
    const changes = listenForChanges(address, () => undefined);
    const served = requests.of(ORG);
    let told = 0;
    const unsubscribe = changes.subscribe(ORG, () => (told += 1), 'log');
    const portOf = 'select inet_server_port() as port';
    const expectAll = async (server: PostgresServer) => {
      const kinds: Sql[] = [pool, served.pool, served.reads];
      for (const sql of kinds) {
        const { rows } = await until(
          () => sql.query<{ port: number }>(portOf).catch(() => ({ rows: [] })),
          ({ rows: [row] }) => row !== undefined,
        );
        expect(rows[0]!.port).toBe(server.port);
      }
      await until(
        () => Promise.resolve(changes.live),
        (live) => live,
      );
      const before = told;
      await inTransaction(pool, (tx) => announceLog(tx, ORG));
      await until(
        () => Promise.resolve(told),
        (count) => count > before,
      );
      expect(await migrate(address)).toEqual([]);
    };
    try {
      await expectAll(one!);
      await one!.kill();
      two!.promote();
      await expectAll(two!);
    } finally {
      unsubscribe();
      await changes.close();
      await requests.close();
      await pool.end();
    }
  });

  test('a previous primary that runs again is not used, also after a restart of the service', async () => {
    const file = join(root, 'database-timeline');
    await one!.start({ synchronous_standby_names: '' });
    const both = urlOf('before', one!, two!);
    clusterOf(both.url).keepIn(file);
    const client = await connectAlone(both);
    expect(client.port).toBe(two!.port);
    await client.end();
    expect(readFileSync(file, 'utf8')).toMatch(/^\d+ 2\n$/);

    await two!.kill();
    const again = urlOf('after', one!, two!);
    clusterOf(again.url).keepIn(file);
    const refusal =
      /is a previous primary: its timeline is 1, and this service has used timeline 2\..* remove/;
    await expect(connectAlone(again)).rejects.toThrow(refusal);
    // Also where the URL has only that server.
    const alone = urlOf('alone', one!);
    clusterOf(alone.url).keepIn(file);
    await expect(connectAlone(alone)).rejects.toThrow(refusal);
    await one!.kill();
  });

  test('connections leave a server that still runs when another was promoted', async () => {
    await two!.start();
    const three = await PostgresServer.copy(two!, root, 'three');
    all.push(three);
    await three.start();
    const address = urlOf('split', two!, three);
    const client = await connectAlone(address);
    expect(client.port).toBe(two!.port);
    three.promote();
    const failed = await until(
      () =>
        client.query('select').then(
          () => undefined,
          (error: Error) => error.message,
        ),
      (message) => message !== undefined,
    );
    expect(failed).toMatch(/another server became the primary|not queryable/);
    const next = await connectAlone(address);
    expect(next.port).toBe(three.port);
    await next.end();
    await client.end();
  });

  test('another cluster at the same address is refused until a restart', async () => {
    const other = await PostgresServer.make(root, 'other');
    all.push(other);
    await other.start();
    const address = urlOf('moved', all[2]!, other);
    const client = await connectAlone(address);
    expect(client.port).toBe(all[2]!.port);
    // A new connection goes to the same server as long as an open one shows that it serves.
    const ended = new Promise((resolve) => client.once('end', resolve));
    await all[2]!.kill();
    await ended;
    await expect(connectAlone(address)).rejects.toThrow(/belongs to another cluster.*restart the service/);
  });
});
