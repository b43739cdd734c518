import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { until } from '../support/polling.js';
import { makeSynchronous, PostgresServer, whyNoServers } from '../support/postgres-server.js';
import { cleanUp, launch, makeFolder, ready, stop, volumeNames, type Served } from '../support/processes.js';

const reason = whyNoServers();
if (reason !== undefined) console.warn(`the test of a lost standby is SKIPPED: ${reason}`);

/** More than the connections of the service for writes. */
const WRITERS = 40;
/** A request that hangs fails the test. The service answers after at most two times 30 s. */
const BOUND_MS = 300_000;

describe.skipIf(reason !== undefined)(
  `a lost synchronous standby${reason ? ` — SKIPPED: ${reason}` : ''}`,
  () => {
    const root = mkdtempSync(join(tmpdir(), 'sandkeep-standby-'));
    let primary: PostgresServer;
    let standby: PostgresServer;
    let folder: string;
    let service: Served;
    const acknowledged: string[] = [];

    beforeAll(async () => {
      chmodSync(root, 0o755);
      primary = await PostgresServer.make(root, 'one');
      await primary.start();
      standby = await PostgresServer.copy(primary, root, 'two');
      await standby.start();
      await makeSynchronous(primary);
      folder = makeFolder();
      service = await serveOn(primary);
    });
    afterAll(async () => {
      await cleanUp(folder);
      await standby.kill();
      await primary.kill();
      rmSync(root, { recursive: true, force: true });
    });

    async function serveOn({ url }: PostgresServer): Promise<Served> {
      const dataDir = join(folder, 'data');
      const fixed = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'warn'];
      return ready(launch(['serve', ...fixed, '--database-url', url, '--data-dir', dataDir]), dataDir);
    }

    async function write(name: string) {
      const answer = await fetch(`${service.url}/v1/volumes`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${service.firstKey!}`,
          'content-type': 'application/json',
          'idempotency-key': name,
        },
        body: JSON.stringify({ name }),
        signal: AbortSignal.timeout(BOUND_MS),
      });
      const body = (await answer.json()) as { name?: string; error?: { code: string; message: string } };
      if (answer.status < 300) acknowledged.push(name);
      return { status: answer.status, retryAfter: answer.headers.get('retry-after'), error: body.error };
    }

    const writeUntilDone = (name: string) =>
      until(
        () => write(name),
        ({ status }) => status < 300,
        BOUND_MS,
      );
    const waiting = async () =>
      (await primary.query("select from pg_stat_activity where wait_event = 'SyncRep'")).length;
    const sessions = async () =>
      (await primary.query("select from pg_stat_activity where application_name = 'sandkeep'")).length;
    const namesAt = async (server: PostgresServer) =>
      (await server.query<{ name: string }>('select name from volumes where name is not null')).map(
        ({ name }) => name,
      );

    test('leaves a write unconfirmed with 503, and the same request later gets its answer', async () => {
      await writeUntilDone('before');
      await standby.kill();
      const refused = await write('during');
      expect(refused).toEqual({
        status: 503,
        retryAfter: '5',
        error: expect.objectContaining({
          code: 'not_ready',
          message: 'the database has not confirmed the write in time: it may have been carried out',
        }),
      });
      // Its commit still waits, so nobody sees it.
      expect(await waiting()).toBeGreaterThan(0);
      expect(await namesAt(primary)).toEqual(['before']);

      const many = await Promise.all(Array.from({ length: WRITERS }, (_, count) => write(`one-of-${count}`)));
      expect(new Set(many.map(({ status }) => status))).toEqual(new Set([503]));
      expect(await sessions()).toBeLessThan(WRITERS);

      await standby.start();
      await writeUntilDone('during');
      await writeUntilDone('after');
      await until(waiting, (count) => count === 0);
      const names = await volumeNames(service, service.firstKey!);
      expect(names.filter((name) => name === 'during')).toHaveLength(1);
      expect(names).toEqual(expect.arrayContaining(acknowledged));
      expect(await namesAt(standby)).toEqual(expect.arrayContaining(acknowledged));
    }, 900_000);

    test('holds up neither a stop nor a start, and an empty list of standbys ends the wait', async () => {
      await standby.kill();
      expect((await write('last')).status).toBe(503);
      const stopped = await stop(service);
      expect([stopped, service.err()]).toEqual([0, expect.any(String)]);
      const { firstKey } = service;
      await primary.query("alter system set synchronous_standby_names = ''");
      await primary.query('select pg_reload_conf()');
      service = { ...(await serveOn(primary)), firstKey };
      await writeUntilDone('last');
      await until(waiting, (count) => count === 0);
      expect(await volumeNames(service, firstKey!)).toEqual(expect.arrayContaining(acknowledged));
    });
  },
);
