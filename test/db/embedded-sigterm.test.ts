import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  call,
  cleanUp,
  copyFolder,
  databaseOf,
  inDatabase,
  kill,
  makeDatabaseFolder,
  makeUsed,
  serve,
  until,
  untilStopped,
  type Served,
} from '../support/processes.js';

describe.skipIf(process.platform !== 'linux')('a service at SIGTERM (the tests need /proc)', () => {
  let used: string;
  let key: string;
  let dataDir: string;
  let service: Served;

  beforeAll(async () => {
    ({ used, key } = await makeUsed());
  });
  beforeEach(async () => {
    dataDir = join(makeDatabaseFolder(), 'data');
    copyFolder(used, dataDir);
    service = await serve(dataDir);
  });
  afterEach(() => cleanUp(dirname(dataDir)));
  afterAll(() => cleanUp(dirname(used)));

  test('answers the requests in progress, exits with 0, and leaves neither processes nor stale files', async () => {
    const [statuses, sandbox] = await inDatabase(dataDir, async (client) => {
      await holdReconciler(client);
      const body = { name: 'a', image: { type: 'oci', reference: 'busybox' } };
      const held = call(service, 'POST', '/v1/sandboxes?start=true&wait_for=running', { key, body });
      await until('the sandbox is starting', async () => {
        const { rows } = await client.query(`select from sandboxes where status = 'starting'`);
        return rows.length === 1;
      });
      const blocked = await blockedWrites(client);
      kill('SIGTERM', service.pid);
      await untilStopping();
      expect(service.process.exitCode).toBeNull();
      await client.query('commit');
      return [await Promise.all(blocked), await held] as const;
    });
    expect(statuses).toEqual([200, 200, 200, 200, 200]);
    expect(sandbox).toMatchObject({ status: 200, body: { status: 'starting' } });
    expect(await service.exited).toEqual({ code: 0, signal: null });
    expect(databaseOf(dataDir).all).toEqual([]);
    // A small disk has no room for the ballast.
    expect(readdirSync(dataDir).toSorted()).toEqual([
      ...(existsSync(join(dataDir, 'ballast')) ? ['ballast'] : []),
      'event-heads',
      'event-keys',
      'postgres',
      'postgres.log',
      'run',
      'secret-keys',
      'simulated',
      'volumes',
      'webhook-reach.json',
    ]);
    expect(readdirSync(join(dataDir, 'run'))).toEqual([]);
    expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false);
  });

  test('does not wait for idle connections of clients', async () => {
    await inDatabase(dataDir, async (client) => {
      const blocked = await blockedWrites(client, { keepAlive: true });
      kill('SIGTERM', service.pid);
      await untilStopping();
      await client.query('commit');
      expect(await Promise.all(blocked)).toEqual([200, 200, 200, 200, 200]);
    });
    await until('it has ended', () => service.process.exitCode === 0, 60_000);
  });

  test('exits at once at a second signal, and the database stops by itself', async () => {
    await inDatabase(dataDir, async (client) => {
      const blocked = await blockedWrites(client);
      kill('SIGTERM', service.pid);
      await untilStopping();
      expect(service.process.exitCode).toBeNull();
      kill('SIGTERM', service.pid);
      expect((await service.exited).code).toBe(1);
      for (const { reason } of (await Promise.allSettled(blocked)) as PromiseRejectedResult[]) {
        expect(reason).toBeInstanceOf(TypeError);
      }
    });
    await untilStopped(dataDir);
  });

  /** Waits until the service has handled the signal: the kernel merges a second one with one that still waits. */
  function untilStopping(): Promise<void> {
    return until('it refuses new requests', () =>
      call(service, 'GET', '/healthz').then(
        ({ status }) => status === 503,
        () => true,
      ),
    );
  }

  /** Five requests that wait for the transaction of `client` to end. */
  async function blockedWrites(client: pg.Client, { keepAlive = false } = {}): Promise<Promise<number>[]> {
    await client.query('begin; lock table volumes in exclusive mode');
    const blocked = Array.from({ length: 5 }, async (_, index) => {
      const body = { name: `blocked-${index}` };
      return (await call(service, 'POST', '/v1/volumes', { key, body, keepAlive })).status;
    });
    // A later await still gets the rejection.
    for (const one of blocked) one.catch(() => undefined);
    await until('they wait', async () => {
      const { rows } = await client.query(
        // The lock of a write: the worker reads volumes under another mode.
        `select from pg_locks where not granted and relation = 'volumes'::regclass and mode = 'RowExclusiveLock'`,
      );
      return rows.length === blocked.length;
    });
    return blocked;
  }

  /** Takes the lease of the worker, so that no start becomes running. */
  async function holdReconciler(client: pg.Client): Promise<void> {
    await until('the worker has registered', async () => {
      const { rowCount } = await client.query(
        "update workers set holder = 'another', epoch = epoch + 1, expires_at = now() + interval '1 hour'",
      );
      return rowCount === 1;
    });
  }
});
