import { spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeBackup } from '../../src/backup/make.js';
import { withArchive } from '../../src/backup/archive/open.js';
import type { Header } from '../../src/backup/archive/format.js';
import { sleep } from '../../src/lib/sleep.js';
import { atRest, everyRow, fillVolume, positions, rowsOf, withEmptyDatabase } from '../support/backup.js';
import { expectRefused, NO_DOCKER, run, runJson } from '../support/cli.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { withOlderDatabase } from '../support/older-database.js';
import {
  call,
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeDatabaseFolder,
  ready,
  serve,
  stop,
  until,
  type Served,
} from '../support/processes.js';

const DAY_MS = 86_400_000;

/** Random requests over several connections, until `stop`. */
function work(service: Served, key: string, connections: number) {
  const acknowledged: string[] = [];
  const failed: unknown[] = [];
  const stopping = new AbortController();
  const one = async (connection: number): Promise<void> => {
    for (let count = 0; !stopping.signal.aborted; count += 1) {
      const name = `work-${connection}-${count}`;
      const body = { ...smallRequest(name), labels: { team: `t${connection}` } };
      const send = (method: string, path: string, sent?: unknown) =>
        call(service, method, path, { key, body: sent }).catch(() => undefined);
      const made = await send('POST', '/v1/sandboxes?start=true', body);
      if (made === undefined) return;
      if (made.status >= 300) throw new Error(JSON.stringify(made));
      acknowledged.push(name);
      const { id } = made.body as { id: string };
      const draw = Math.random();
      if (draw < 0.7) await send('POST', `/v1/sandboxes/${id}/stop`);
      if (draw < 0.2) await send('DELETE', `/v1/sandboxes/${id}`);
    }
  };
  const ended = Promise.all(
    Array.from({ length: connections }, (_, index) =>
      one(index).catch((error: unknown) => failed.push(error)),
    ),
  );
  return {
    acknowledged,
    async stop() {
      stopping.abort();
      await ended;
      expect(failed).toEqual([]);
    },
  };
}

async function headerOf(file: string): Promise<Header> {
  return withArchive(file, {}, (reader) => reader.readHeader());
}

/** Whether a row was written before a snapshot. */
const seenIn = (snapshot: string) => `pg_visible_in_snapshot(t.xmin::text::xid8, '${snapshot}')`;

/** Each test starts the program many times. */
const PATIENCE = { timeout: 600_000 };

describe.skipIf(process.platform !== 'linux')('a backup', PATIENCE, () => {
  let folder: string;
  const at = (name: string) => join(folder, name);

  beforeEach(() => {
    folder = makeDatabaseFolder();
  });
  afterEach(() => cleanUp(folder));

  test('has every acknowledged write of a service under load, and one moment of every table', async () => {
    const source = at('source');
    // Room for every sandbox of the load: a start that waits for room would wait until the end of the test.
    const room = ['--capacity-vcpus', '1000000', '--capacity-memory-mib', '999999999'];
    const service = await ready(
      launch(['serve', '--json', '--port', '0', '--runtime', 'simulated', ...room, '--data-dir', source]),
      source,
    );
    const key = service.firstKey!;
    const volume = (await call(service, 'POST', '/v1/volumes', { key, body: { name: 'kept' } })).body as {
      id: string;
    };
    const org = await orgOf(at('source'));
    const data = join(source, 'volumes', org, volume.id, 'data');
    mkdirSync(data, { recursive: true });
    fillVolume(data);
    const load = work(service, key, 4);
    await until('it works', () => load.acknowledged.length >= 20);
    const before = [...load.acknowledged];
    const settledAt = new Date().toISOString();
    // The database learns of starts and ends later than they are.
    await until('every run of before is recorded', async () => {
      const path = `/v1/sandboxes?limit=100&created_before=${settledAt}`;
      const { body } = await call(service, 'GET', path, { key });
      return (body as { data: { status: string }[] }).data.every(
        ({ status }) => status !== 'starting' && status !== 'stopping',
      );
    });

    const file = at('backup.tar.gz');
    const made = await runJson(['backup', file, '--data-dir', source]);
    expect(made).toMatchObject({ file, encrypted: false, volumes: 1 });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const after = load.acknowledged.length;
    await until('it works on', () => load.acknowledged.length >= after + 5);
    kill('SIGKILL', service.pid);
    await service.exited;
    await load.stop();

    const restored = at('restored');
    const result = await runJson(['restore', file, '--data-dir', restored, ...NO_DOCKER]);
    expect(result).toMatchObject({
      faults: [],
      notes: [],
      engine: { runtime: 'simulated', unreachable: null },
    });
    expect(result.events_verified).toBeGreaterThan(before.length);

    const { database } = await headerOf(file);
    const [wrote, changed] = await atRest({ dataDir: source }, async (pool) => {
      const onlyAdded: Record<string, string[]> = {};
      for (const table of ['events', 'event_log', 'event_checkpoints', 'idempotency_keys', 'usage_days'])
        onlyAdded[table] = await rowsOf(pool, table, seenIn(database.snapshot));
      const rows = Object.fromEntries(
        await Promise.all(
          database.tables.map(async ({ name }) => [
            name,
            await rowsOf(pool, name, seenIn(database.snapshot)),
          ]),
        ),
      ) as Record<string, string[]>;
      return [onlyAdded, rows] as const;
    });
    await atRest({ dataDir: restored }, async (pool) => {
      const found = await everyRow(pool);
      // Rows that are never changed are exactly those of the snapshot; others are a part of it.
      for (const table of ['events', 'event_log', 'event_checkpoints'])
        expect(found[table]).toEqual(wrote[table]);
      for (const [table, rows] of Object.entries(changed)) {
        const restoredRows = new Set(found[table]);
        expect([table, rows.filter((row) => !restoredRows.has(row))]).toEqual([table, []]);
      }
      const { rows: names } = await pool.query<{ name: string }>('select name from sandboxes');
      const known = new Set(names.map(({ name }) => name));
      expect(before.filter((name) => !known.has(name))).toEqual([]);
    });

    const since = new Date(Date.parse(settledAt) - DAY_MS).toISOString();
    const window = ['--since', since, '--until', settledAt];
    const report = async (dataDir: string) =>
      runJson(['usage', '--org', 'default', ...window, '--data-dir', dataDir]);
    expect(await report(restored)).toEqual(await report(source));

    const copy = data.replace(source, restored);
    expect(spawnSync('diff', ['--recursive', '--no-dereference', data, copy]).status).toBe(0);
    for (const name of ['deep/er/file', 'program', 'out', 'hole', '.']) {
      const [one, other] = [lstatSync(join(data, name)), lstatSync(join(copy, name))];
      expect([name, other.mode, other.uid, other.gid]).toEqual([name, one.mode, one.uid, one.gid]);
    }
    expect(statSync(join(copy, 'hole')).blocks).toBeLessThan(1_000);
    expect(statSync(join(copy, 'second-name')).ino).toBe(statSync(join(copy, 'program')).ino);

    // The restored service works on, with the same key.
    const next = await serve(restored);
    expect(next.firstKey).toBeUndefined();
    expect((await call(next, 'GET', '/v1/sandboxes', { key })).status).toBe(200);
    expect(await stop(next)).toBe(0);
    await runJson(['events', 'verify', '--data-dir', restored]);
  });

  test('restores events that waited for the sealer, which the next service seals', async () => {
    const [source, file, restored] = [at('source'), at('backup.tar.gz'), at('restored')];
    // Events are sealed by workers.
    const serving = ['serve', '--json', '--port', '0', '--runtime', 'simulated', '--role', 'api'];
    const service = await ready(launch([...serving, '--data-dir', source]), source);
    const body = { name: 'kept' };
    expect((await call(service, 'POST', '/v1/volumes', { key: service.firstKey!, body })).status).toBe(200);
    expect(await stop(service)).toBe(0);
    const waiting = await atRest({ dataDir: source }, (pool) =>
      pool.query("update unsealed_events set queued_at = queued_at - interval '1 hour'"),
    );
    expect(waiting.rowCount).toBeGreaterThan(0);
    const verify = (dataDir: string) => run(['events', 'verify', '--data-dir', dataDir]);
    expect((await verify(source)).out).toMatch(/has waited for the sealer/);

    await runJson(['backup', file, '--data-dir', source]);
    const result = await runJson(['restore', file, '--data-dir', restored, ...NO_DOCKER]);
    expect(result).toMatchObject({ faults: [] });
    const next = await serve(restored);
    await until('the events are sealed', async () => {
      const left = await inDatabase(restored, (sql) => sql.query('select from unsealed_events'));
      return left.rowCount === 0;
    });
    expect(await stop(next)).toBe(0);
    expect((await verify(restored)).code).toBe(0);
  });

  describe('while nothing writes', () => {
    let origin: string;
    let source: string;
    let file: string;

    beforeAll(async () => {
      origin = makeDatabaseFolder();
      source = join(origin, 'source');
      file = join(origin, 'backup.tar.gz');
      const service = await serve(source);
      const load = work(service, service.firstKey!, 3);
      await until('it works', () => load.acknowledged.length >= 10);
      await load.stop();
      expect(await stop(service)).toBe(0);
      await runJson(['backup', file, '--data-dir', source]);
    });
    afterAll(() => cleanUp(origin));

    test('is restored into an external database with equal rows, and from there into an embedded one', async () => {
      const rows = await atRest({ dataDir: source }, everyRow);
      const counters = await atRest({ dataDir: source }, positions);
      await withEmptyDatabase(async (url) => {
        const place = { dataDir: at('files'), databaseUrl: url };
        await runJson(['restore', file, '--data-dir', place.dataDir, '--database-url', url]);
        expect(await atRest(place, everyRow)).toEqual(rows);
        expect(await atRest(place, positions)).toEqual(counters);
        await runJson(['backup', at('second.tar.gz'), '--data-dir', place.dataDir, '--database-url', url]);
      });
      await runJson(['restore', at('second.tar.gz'), '--data-dir', at('back')]);
      expect(await atRest({ dataDir: at('back') }, everyRow)).toEqual(rows);
    });

    test('is encrypted to a key or under a passphrase, and opens with nothing else', async () => {
      const { generateIdentity, identityToRecipient } = await import('age-encryption');
      const identity = await generateIdentity();
      writeFileSync(at('key'), `# a comment\n${identity}\n`);
      writeFileSync(at('other'), `${await generateIdentity()}\n`);
      writeFileSync(at('passphrase'), 'correct horse battery staple\n');
      writeFileSync(at('wrong'), 'wrong\n');
      const recipient = await identityToRecipient(identity);
      await runJson(['backup', at('key.age'), '--data-dir', source, '--encrypt-to', recipient]);
      await runJson(['backup', at('word.age'), '--data-dir', source, '--passphrase-file', at('passphrase')]);
      const verify = (...args: string[]) => run(['backup', 'verify', ...args]);
      expect((await verify(at('key.age'), '--identity-file', at('key'))).code).toBe(0);
      expect((await verify(at('word.age'), '--passphrase-file', at('passphrase'))).code).toBe(0);
      expectRefused(await verify(at('key.age')), 'it is encrypted: name its key with --identity-file');
      expectRefused(await verify(at('key.age'), '--identity-file', at('other')), 'another key');
      expectRefused(await verify(at('word.age'), '--passphrase-file', at('wrong')), 'another passphrase');
      expectRefused(await run(['backup', at('x'), '--data-dir', source, '--encrypt-to', 'age1x']), 'age1');
      const bytes = readFileSync(at('key.age'));
      bytes[bytes.length - 100]! ^= 1;
      writeFileSync(at('changed.age'), bytes);
      expectRefused(
        await verify(at('changed.age'), '--identity-file', at('key')),
        'its encryption does not hold',
      );
      expect(bytes.includes('sandkeep-backup.json')).toBe(false);
      await withEmptyDatabase(async (url) => {
        const place = ['--data-dir', at('files'), '--database-url', url, '--identity-file', at('key')];
        expect((await runJson(['restore', at('key.age'), ...place])).faults).toEqual([]);
      });
    });

    test('without keys says so, and names the keys that must come back', async () => {
      const { left_out: leftOut } = await runJson([
        'backup',
        at('bare'),
        '--data-dir',
        source,
        '--without-keys',
        '--without-volumes',
      ]);
      expect(leftOut.join()).toMatch(/--without-volumes.*--without-keys/);
      await withEmptyDatabase(async (url) => {
        const place = ['--data-dir', at('files'), '--database-url', url];
        const { notes, faults } = await runJson(['restore', at('bare'), ...place]);
        expect([faults, notes.join()]).toEqual([
          [],
          expect.stringMatching(/the key .* of secrets.*event log is not verified/),
        ]);
      });
      expectRefused(
        await run(['backup', at('x'), '--data-dir', source, '--secret-keys-file', at('none')]),
        'none is missing, and a backup needs the keys',
      );
    });

    test('is refused where anything is, and a killed restore is completed by the next', async () => {
      expectRefused(await run(['restore', file, '--data-dir', source]), /exists: choose another --data-dir/);
      await withEmptyDatabase(async (url, address) => {
        const place = ['--data-dir', at('files'), '--database-url', url];
        const { openPool } = await import('../../src/db/pool.js');
        const pool = openPool(address, () => undefined);
        await pool.query('create table precious ()');
        expectRefused(await run(['restore', file, ...place]), 'needs an empty database');
        await pool.query('drop table precious');
        await pool.end();

        const mark = join(at('files'), 'unfinished-restore');
        // A kill can come too late, when this process waits for a processor.
        for (let attempt = 0; attempt < 5; attempt += 1) {
          const killed = launch(['restore', file, ...place]);
          const hasBegun = () => existsSync(mark) || killed.process.exitCode !== null;
          await until('it has begun', hasBegun, undefined, 1);
          kill('SIGKILL', killed.pid);
          await killed.exited;
          if (existsSync(mark)) break;
          await atRestSql(url, 'drop schema public cascade');
          await atRestSql(url, 'create schema public');
          rmSync(at('files'), { recursive: true });
        }
        expectRefused(await run(['serve', ...place]), 'has not finished: run "sandkeep restore');
        expectRefused(await run(['org', 'list', ...place]), 'has not finished: run "sandkeep restore');
        expect((await runJson(['restore', file, ...place])).faults).toEqual([]);
        expect(existsSync(mark)).toBe(false);
        await runJson(['org', 'list', ...place]);

        // A kill after the commit, but before the end.
        const { closedByRestore } = await import('../../src/backup/target.js');
        const creates = readdirSync(at('files')).map((name) => join(at('files'), name));
        writeFileSync(mark, JSON.stringify({ id: 'abc', file, creates }));
        await atRestSql(url, `update instance set closed = '${closedByRestore('abc')}'`);
        expect((await runJson(['restore', file, ...place])).faults).toEqual([]);

        // A kill before the removal of the mark: the database is open, and may have new rows.
        const created = ['org', 'create', '--name', 'Later', '--slug', 'later', ...place];
        await runJson(created);
        writeFileSync(mark, JSON.stringify({ id: 'abc', file, creates, isComplete: true }));
        expectRefused(await run(['org', 'list', ...place]), 'has not finished');
        expect((await runJson(['restore', file, ...place])).faults).toEqual([]);
        expect(existsSync(mark)).toBe(false);
        expect(JSON.stringify(await runJson(['org', 'list', ...place]))).toContain('"later"');
      });
      const embedded = launch(['restore', file, '--data-dir', at('embedded')]);
      const begins = () =>
        existsSync(join(at('embedded'), 'unfinished-restore')) || embedded.process.exitCode !== null;
      await until('it has begun', begins, undefined, 1);
      await sleep(Math.random() * 1_000);
      kill('SIGKILL', embedded.pid);
      await embedded.exited;
      // A fast restore has ended before the kill.
      if (existsSync(join(at('embedded'), 'unfinished-restore')))
        expect((await runJson(['restore', file, '--data-dir', at('embedded')])).faults).toEqual([]);
      await runJson(['org', 'list', '--data-dir', at('embedded')]);
    });
  });

  test('with an older schema is migrated forward, with its rows', async () => {
    const last = 18;
    const id = '01a210a0-d8ce-7654-8000-0382f2de5f68';
    const places = {
      dataDir: folder,
      volumesDir: at('volumes'),
      secretKeysFile: at('s'),
      eventKeysFile: at('e'),
    };
    await withOlderDatabase(last, async (_, pool) => {
      await pool.query(`insert into instance (singleton, id, cursor_key) values (true, $1, $2)`, [
        id,
        Buffer.alloc(32),
      ]);
      await pool.query(`insert into orgs values ($1, 'Old', 'old', now(), now())`, [id]);
      await pool.query(`insert into quotas (org_id, updated_at) values ($1, now())`, [id]);
      await makeBackup(pool, { places, file: at('old.tar.gz'), withVolumes: false, withKeys: false });
    });
    await withEmptyDatabase(async (url) => {
      const place = ['--data-dir', at('files'), '--database-url', url];
      const { code, err, out } = await run(['restore', at('old.tar.gz'), ...place, '--json']);
      expect([code, err, out]).toEqual([0, '', expect.anything()]);
      expect(JSON.parse(out)).toMatchObject({ faults: [] });
      expect(await runJson(['org', 'list', ...place])).toMatchObject([{ id, slug: 'old' }]);
    });
  });

  test('follows no link that a guest plants, and reports what changed meanwhile', async () => {
    const service = await serve(at('source'));
    const key = service.firstKey!;
    const volume = (await call(service, 'POST', '/v1/volumes', { key, body: { name: 'hostile' } })).body as {
      id: string;
    };
    const org = await orgOf(at('source'));
    const data = join(at('source'), 'volumes', org, volume.id, 'data');
    mkdirSync(join(data, 'a'), { recursive: true });
    mkdirSync(at('outside'));
    writeFileSync(join(at('outside'), 'secret'), 'not of the guest');
    const stopping = new AbortController();
    const attack = (async () => {
      for (let round = 0; !stopping.signal.aborted; round += 1) {
        rmSync(join(data, 'a'), { recursive: true, force: true });
        if (round % 2 === 0) symlinkSync(at('outside'), join(data, 'a'));
        else mkdirSync(join(data, 'a'));
        writeFileSync(join(data, 'grows'), Buffer.alloc(round * 1_000));
        await sleep(1);
      }
    })();
    for (let round = 0; round < 3; round += 1) {
      const file = at(`backup-${round}.tar.gz`);
      await runJson(['backup', file, '--data-dir', at('source')]);
      const { status, stdout } = spawnSync('sh', ['-c', `gzip -dc '${file}' | grep -c 'not of the guest'`], {
        encoding: 'utf8',
      });
      expect([status, stdout]).toEqual([1, '0\n']);
    }
    stopping.abort();
    await attack;
    expect(await stop(service)).toBe(0);
  });
});

async function atRestSql(url: string, statement: string): Promise<void> {
  const { openPool } = await import('../../src/db/pool.js');
  const pool = openPool({ url }, () => undefined);
  await pool.query(statement);
  await pool.end();
}

async function orgOf(dataDir: string): Promise<string> {
  const { rows } = await inDatabase(dataDir, (client) => client.query<{ id: string }>('select id from orgs'));
  return rows[0]!.id;
}
