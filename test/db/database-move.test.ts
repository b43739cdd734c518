import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { atRest, everyRow, positions, withEmptyDatabase } from '../support/backup.js';
import { expectRefused, run, runJson } from '../support/cli.js';
import {
  cleanUp,
  createVolume,
  inDatabase,
  kill,
  launch,
  makeDatabaseFolder,
  serve,
  stop,
  until,
} from '../support/processes.js';

describe.skipIf(process.platform !== 'linux')('a move of the database', () => {
  let folder: string;
  let dataDir: string;

  beforeEach(() => {
    folder = makeDatabaseFolder();
    dataDir = join(folder, 'data');
  });
  afterEach(() => cleanUp(folder));

  /** Every row of both, without the reason of a closed database. */
  async function everything(place: { dataDir: string; databaseUrl?: string }): Promise<unknown> {
    return atRest(place, async (pool) => {
      const { instance, ...rows } = await everyRow(pool);
      return { rows, identity: instance![0]!.split(',').slice(0, 3), positions: await positions(pool) };
    });
  }

  test('goes to an external database and back, and leaves only one of them in use', async () => {
    const service = await serve(dataDir);
    const key = service.firstKey!;
    for (const name of ['one', 'two']) expect(await createVolume(service, key, name)).toBe(200);
    await withEmptyDatabase(async (url) => {
      const out = ['database', 'move', '--data-dir', dataDir, '--to', url];
      expectRefused(await run(out), 'is in use by "sandkeep serve"');
      await until('events are in the log', async () => {
        const counted = await inDatabase(dataDir, (client) =>
          client.query('select 1 from event_log limit 1'),
        );
        return counted.rows.length > 0;
      });
      expect(await stop(service)).toBe(0);
      const before = await everything({ dataDir });

      const killed = launch(out);
      await until('it owns the directory', () => readdirSync(dataDir).includes('owner.json'), undefined, 1);
      kill('SIGKILL', killed.pid);
      await killed.exited;

      expect((await runJson(out)).events_verified).toBeGreaterThan(0);
      expect(await everything({ dataDir, databaseUrl: url })).toEqual(before);
      expectRefused(
        await run(['serve', '--data-dir', dataDir]),
        /was moved to (postgres:|an external database)/,
      );
      expectRefused(await run(out), 'the database of --to has tables');
      expect(await everything({ dataDir })).toEqual(before);

      // A kill between the closing of the old database and the opening of the new one.
      await atRest({ dataDir, databaseUrl: url }, (pool) =>
        pool.query(
          `update instance set closed = 'a move into this database has not finished: run "sandkeep database move" with the same options again'`,
        ),
      );
      expectRefused(
        await run(['org', 'list', '--data-dir', dataDir, '--database-url', url]),
        'has not finished',
      );
      await runJson(out);
      await runJson(['org', 'list', '--data-dir', dataDir, '--database-url', url]);

      const back = ['database', 'move', '--data-dir', dataDir, '--database-url', url, '--to', 'embedded'];
      const { set_aside: setAside } = await runJson(back);
      expect(setAside).toMatch(/postgres\.moved-\d{14}$/);
      expect(await everything({ dataDir })).toEqual(before);
      expectRefused(
        await run(['serve', '--data-dir', dataDir, '--database-url', url]),
        'was moved to the embedded database',
      );
    });
    const next = await serve(dataDir);
    expect(await createVolume(next, key, 'three')).toBe(200);
    expect(await stop(next)).toBe(0);
  });
});
