import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeBaseCopy } from '../../src/backup/wal-archive/base-copy.js';
import { removeOld } from '../../src/backup/wal-archive/keep.js';
import { baseCopiesIn, segmentAfter, segmentFile } from '../../src/backup/wal-archive/layout.js';
import { findDataDirectory } from '../../src/db/embedded/directory.js';
import { sleep } from '../../src/lib/sleep.js';
import { expectRefused, NO_DOCKER, PROGRAM, run, runJson, start } from '../support/cli.js';
import {
  call,
  cleanUp,
  copyFolder,
  createVolume,
  kill,
  launchServe,
  makeDatabaseFolder,
  stop,
  until,
  untilStopped,
  volumeNames,
  serve,
  type Served,
} from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { atRest } from '../support/backup.js';
import {
  archived,
  launchArchived,
  momentOf,
  rootIn,
  serveArchived,
  switchSegment,
  untilCopied,
  type Moment,
} from '../support/wal-archive.js';

/** Each test starts the program many times. */
const PATIENCE = { timeout: 900_000 };

/** Random work over several connections, until each has sent `requests`. */
async function work(service: Served, key: string, round: number, requests = 12): Promise<void> {
  const one = async (connection: number): Promise<void> => {
    const mine: string[] = [];
    for (let count = 0; count < requests; count += 1) {
      const name = `r${round}-${connection}-${count}`;
      const draw = Math.random();
      if (draw < 0.4) await createVolume(service, key, name);
      else if (draw < 0.8 || mine.length === 0) {
        const body = { ...smallRequest(name), labels: { round: `${round}`, connection: `${connection}` } };
        const { status, body: made } = await call(service, 'POST', '/v1/sandboxes', { key, body });
        expect(status, JSON.stringify(made)).toBeLessThan(300);
        mine.push((made as { id: string }).id);
      } else {
        await call(service, 'DELETE', `/v1/sandboxes/${mine.pop()!}`, { key });
      }
    }
  };
  await Promise.all([0, 1, 2].map(one));
}

async function restoreTo(archive: string, dataDir: string, at?: string): Promise<any> {
  const time = at === undefined ? [] : ['--to-time', at];
  const result = await runJson(['restore', archive, '--data-dir', dataDir, ...time, ...NO_DOCKER]);
  expect(result).toMatchObject({ faults: [], notes: [] });
  return result;
}

/** The rows of a database whose service does not run. */
async function rowsIn(dataDir: string): Promise<Moment['rows']> {
  return atRest({ dataDir }, async () => (await momentOf(dataDir)).rows);
}

describe.skipIf(process.platform !== 'linux')('the archived log', PATIENCE, () => {
  let folder: string;
  const at = (name: string) => join(folder, name);

  beforeEach(() => {
    folder = makeDatabaseFolder();
  });
  afterEach(() => cleanUp(folder));

  async function begin(archive = at('archive')): Promise<{ service: Served; key: string; root: string }> {
    mkdirSync(archive);
    const service = await serveArchived(at('data'), archive);
    const root = rootIn(archive);
    await untilCopied(root);
    return { service, key: service.firstKey!, root };
  }

  test('restores exactly the rows of each recorded moment, across crashes, commands and base copies', async () => {
    // The name has everything that PostgreSQL or the shell could replace.
    const archive = at(`an "archive's" %p %%f $HOME`);
    const first = await begin(archive);
    const { key, root } = first;
    let { service } = first;
    const directory = findDataDirectory(at('data'))!;
    const moments: Moment[] = [];
    const note = async () => moments.push(await momentOf(at('data')));
    for (let round = 0; round < 6; round += 1) {
      await work(service, key, round);
      await note();
      if (round === 1) await makeBaseCopy(directory, root);
      if (round === 2) {
        kill('SIGKILL', service.pid);
        await service.exited;
        service = await serveArchived(at('data'), archive);
      }
      if (round === 3) {
        expect(await stop(service)).toBe(0);
        await runJson(['org', 'create', '--name', 'Beside', '--slug', 'beside', '--data-dir', at('data')]);
        service = await serveArchived(at('data'), archive);
        await note();
      }
      if (round === 4) await makeBaseCopy(directory, root);
      if (Math.random() < 0.5) await switchSegment(at('data'));
    }
    await createVolume(service, key, 'the-last');
    const last = await momentOf(at('data'));
    expect(await stop(service)).toBe(0);

    expect(rootIn(archive)).toBe(root);
    expect(statSync(join(root, 'keys')).mode & 0o777).toBe(0o700);
    for (const name of ['secret-keys', 'event-keys'])
      expect(statSync(join(root, 'keys', name)).mode & 0o777).toBe(0o600);
    // A restore takes seconds. The choice differs between runs.
    const chosen = moments.toSorted(() => Math.random() - 0.5).slice(0, 3);
    for (const [index, { at: time, rows }] of chosen.entries()) {
      const restored = at(`restored-${index}`);
      expect(await restoreTo(archive, restored, time)).toMatchObject({ moment: expect.any(String) });
      expect(await rowsIn(restored)).toEqual(rows);
      rmSync(restored, { recursive: true });
    }
    const whole = await restoreTo(archive, at('whole'));
    expect(Date.parse(whole.last_change)).toBeGreaterThan(Date.parse(last.at) - 1);
    expect(await rowsIn(at('whole'))).toEqual(last.rows);
    expect(existsSync(at('whole/restored-wal'))).toBe(false);

    // The restored installation works, and archives its log apart from the original.
    const restored = await serveArchived(at('whole'), archive);
    expect(await createVolume(restored, key, 'after')).toBe(200);
    const other = readdirSync(archive).find((name) => join(archive, name) !== root)!;
    await untilCopied(join(archive, other));
    const { rows } = await momentOf(at('whole'));
    expect(await stop(restored)).toBe(0);
    expectRefused(
      await run(['restore', archive, '--data-dir', at('x')]),
      'has several archives: name one of them',
    );
    await restoreTo(join(archive, other), at('again'));
    expect(await rowsIn(at('again'))).toEqual(rows);
    expect(await restoreTo(root, at('first-again'), moments[0]!.at)).toMatchObject({ faults: [] });
  });

  test('loses only the latest segment when the machine is lost', async () => {
    const { service, key, root } = await begin();
    await work(service, key, 0);
    const { at: time, rows } = await momentOf(at('data'));
    await createVolume(service, key, 'later');
    await archived(at('data'), root);
    await work(service, key, 1);
    kill('SIGKILL', service.pid);
    await service.exited;
    await untilStopped(at('data'));
    rmSync(at('data'), { recursive: true });
    await restoreTo(at('archive'), at('restored'), time);
    expect(await rowsIn(at('restored'))).toEqual(rows);
    await restoreTo(at('archive'), at('latest'));
    const latest = await serve(at('latest'));
    expect(await volumeNames(latest, key)).toContain('later');
    expect(await stop(latest)).toBe(0);
  });

  test('keeps services from a restore that was killed, which the same command completes', async () => {
    const { service, key, root } = await begin();
    await work(service, key, 0);
    const { at: time, rows } = await momentOf(at('data'));
    await createVolume(service, key, 'later');
    expect(await stop(service)).toBe(0);
    const begun = performance.now();
    await restoreTo(root, at('timed'), time);
    const wholeMs = performance.now() - begun;
    const target = at('restored');
    const unfinished = join(target, 'unfinished-restore');
    const restore = ['restore', root, '--data-dir', target, '--to-time', time, ...NO_DOCKER];
    let refused = 0;
    for (let kills = 0; kills < 4 || (refused === 0 && kills < 10); kills += 1) {
      const running = start([...PROGRAM, ...restore]);
      const hasBegun = () => existsSync(unfinished) || running.child.exitCode !== null;
      // The first kill comes as soon as the restore has begun, and the others at any moment. On a busy machine, this
      // process may run too late.
      if (refused === 0) await until('the restore has begun', hasBegun, undefined, 1);
      else await sleep(Math.random() * wholeMs);
      running.child.kill('SIGKILL');
      await running.ended;
      if (!existsSync(unfinished)) {
        // The restore had not begun, or was complete.
        await untilStopped(target);
        rmSync(target, { recursive: true, force: true });
        continue;
      }
      const service2 = launchServe(target);
      expect((await service2.exited).code).toBe(1);
      expect(service2.err()).toContain('has not finished: run "sandkeep restore');
      refused += 1;
    }
    expect(refused).toBeGreaterThan(0);
    await restoreTo(root, target, time);
    expect(await rowsIn(target)).toEqual(rows);
    expect(await stop(await serve(target))).toBe(0);
  });

  test('refuses moments that it does not have, gaps and damage, and ignores other files', async () => {
    const { service, key, root } = await begin();
    const refuse = async (archive: string, sentence: string | RegExp, time?: string) => {
      const to = at(`refused-${Math.random()}`);
      const more = time === undefined ? [] : ['--to-time', time];
      expectRefused(await run(['restore', archive, '--data-dir', to, ...more]), sentence);
    };
    await createVolume(service, key, 'one');
    const before = await momentOf(at('data'));
    await createVolume(service, key, 'two');
    const missing = await archived(at('data'), root);
    await createVolume(service, key, 'three');
    const after = await momentOf(at('data'));
    await createVolume(service, key, 'four');
    await archived(at('data'), root);
    await createVolume(service, key, 'five');
    expect(await stop(service)).toBe(0);
    const end = new Date().toISOString();

    await refuse(root, 'choose that moment or a later one', '2020-01-01T00:00:00Z');
    await refuse(root, 'is in the future', '2999-01-01T00:00:00Z');
    await refuse(root, /the archived log ends at .*Z, before .*: choose an earlier moment/, end);
    await refuse(root, 'It must be an RFC 3339 date-time', 'yesterday');
    await refuse(at('data'), 'there is no archive with a base copy');
    expectRefused(
      await run(['restore', root, '--data-dir', at('x'), '--database-url', 'postgres://nowhere/x']),
      'is restored into the embedded database only',
    );
    mkdirSync(at('used'));
    writeFileSync(at('used/file'), '');
    expectRefused(await run(['restore', root, '--data-dir', at('used')]), 'a restore needs an empty place');

    const hostile = at('hostile');
    copyFolder(root, hostile);
    const copy = baseCopiesIn(root)[0]!;
    const future = '29990101T000000000Z';
    symlinkSync(copy.directory, join(hostile, 'base', future));
    mkdirSync(join(hostile, 'base', '29990101T000000001Z'));
    writeFileSync(join(hostile, 'base', '29990101T000000001Z', 'cluster.tar.gz'), 'half');
    for (const [index, text] of ['', '{', 'null', '{"format":2}', '[]'].entries()) {
      const half = join(hostile, 'base', `2999010${index}T000000002Z`);
      mkdirSync(half);
      writeFileSync(join(half, 'base.json'), text);
      writeFileSync(join(half, 'cluster.tar.gz'), 'half');
    }
    mkdirSync(segmentFile(hostile, '0000000100000000000000FF'));
    symlinkSync('/etc/passwd', segmentFile(hostile, '0000000100000000000000FE'));
    for (const name of ['0000000100000000000000FD', '00000001000000000000FD.gz', "x'; false; '.gz", '-rf'])
      writeFileSync(join(hostile, 'wal', name), 'not of the archive');
    await restoreTo(hostile, at('from-hostile'), before.at);
    expect(await rowsIn(at('from-hostile'))).toEqual(before.rows);

    const gap = at('gap');
    copyFolder(root, gap);
    rmSync(segmentFile(gap, missing));
    await refuse(gap, `the log segment ${missing} is missing`);
    await refuse(gap, `the log segment ${missing} is missing`, after.at);
    const later = segmentAfter(missing);
    copyFolder(root, at('later-gap'));
    rmSync(segmentFile(at('later-gap'), later));
    await refuse(at('later-gap'), `the log segment ${later} is missing`);
    await restoreTo(at('later-gap'), at('before-gap'), before.at);
    expect(await rowsIn(at('before-gap'))).toEqual(before.rows);

    const damaged = at('damaged');
    copyFolder(root, damaged);
    truncateSync(segmentFile(damaged, later), 5_000);
    await refuse(damaged, `the log segment ${later} in ${damaged} is damaged`);
    await refuse(damaged, `the log segment ${later} in ${damaged} is damaged`, after.at);
    truncateSync(join(damaged, 'base', copy.directory.split('/').at(-1)!, 'cluster.tar.gz'), 100_000);
    await refuse(damaged, 'cluster.tar.gz is damaged');
  });

  test('removes old base copies and their log, a half copy, and no other file', async () => {
    const { service, key, root } = await begin();
    const directory = findDataDirectory(at('data'))!;
    const moments: Moment[] = [];
    for (let round = 0; round < 4; round += 1) {
      await createVolume(service, key, `volume-${round}`);
      moments.push(await momentOf(at('data')));
      await createVolume(service, key, `later-${round}`);
      await makeBaseCopy(directory, root);
      await archived(at('data'), root);
    }
    expect(baseCopiesIn(root)).toHaveLength(5);
    const [oldest, second, third, fourth] = baseCopiesIn(root);
    const others = [
      ...['notes.txt', '000000010000000000000001.gz.old', '00000001.history.gz'].map((name) =>
        join('wal', name),
      ),
      join('base', 'notes.txt'),
      join('base', oldest!.directory.split('/').at(-1)!, 'notes.txt'),
    ];
    for (const name of others) writeFileSync(join(root, name), 'not of the service');
    writeFileSync(join(root, 'wal', '000000010000000000000001.gz.123'), 'of a killed shell');
    removeOld(root, 2);
    const left = baseCopiesIn(root).map(({ firstSegment }) => firstSegment);
    expect(left).toEqual([fourth!.firstSegment, expect.any(String)]);
    expect(existsSync(second!.directory)).toBe(false);
    expect(existsSync(third!.directory)).toBe(false);
    expect(others.filter((name) => !existsSync(join(root, name)))).toEqual([]);
    const log = readdirSync(join(root, 'wal')).filter((name) => !others.includes(join('wal', name)));
    expect(log.filter((name) => name < fourth!.firstSegment)).toEqual([]);
    const { at: time, rows } = moments[3]!;
    await restoreTo(root, at('restored'), time);
    expect(await rowsIn(at('restored'))).toEqual(rows);
    expectRefused(
      await run(['restore', root, '--data-dir', at('x'), '--to-time', moments[1]!.at]),
      'choose that moment or a later one',
    );

    // A newest copy without its log counts for nothing.
    rmSync(segmentFile(root, baseCopiesIn(root).at(-1)!.lastSegment));
    removeOld(root, 1);
    expect(baseCopiesIn(root)).toHaveLength(2);
    expect(await stop(service)).toBe(0);
  });

  test('a service killed during a base copy leaves none, and removes its remains', async () => {
    mkdirSync(at('archive'));
    const service = launchArchived(at('data'), at('archive'));
    const isBegun = () => {
      const roots = existsSync(at('archive')) ? readdirSync(at('archive')) : [];
      return roots.some(
        (root) =>
          readdirSync(at(`archive/${root}`)).includes('base') &&
          readdirSync(at(`archive/${root}/base`)).length > 0,
      );
    };
    await until('a copy has begun', isBegun, undefined, 1);
    kill('SIGKILL', service.pid);
    await service.exited;
    const root = rootIn(at('archive'));
    const half = join(root, 'base', '20200101T000000000Z');
    mkdirSync(half);
    writeFileSync(join(half, 'cluster.tar.gz.0123456789ab'), 'half');
    const again = await serveArchived(at('data'), at('archive'), '--backup-every-hours', '1');
    await untilCopied(root);
    // A copy that was complete before the kill is not made again, and then nothing is removed.
    if (again.err().includes('a base copy was made')) expect(existsSync(half)).toBe(false);
    expect(await stop(again)).toBe(0);
    await restoreTo(root, at('restored'));
    expect(await rowsIn(at('restored'))).toEqual(await rowsIn(at('data')));
  });

  test('that cannot be written stops nothing, is reported, and catches up', async () => {
    const archive = at('archive');
    mkdirSync(archive);
    const service = await serveArchived(at('data'), archive, '--metrics-port', '0');
    const key = service.firstKey!;
    const root = rootIn(archive);
    await untilCopied(root);
    const { metrics } = JSON.parse(service.out()) as { metrics: string };
    const waiting = async () => {
      const text = await (await fetch(`${metrics}/metrics`)).text();
      return Number(/^sandkeep_wal_archive_waiting_seconds (\S+)$/m.exec(text)![1]);
    };
    expect(await createVolume(service, key, 'before')).toBe(200);
    renameSync(archive, at('away'));
    await switchSegment(at('data'));
    await until('the failure is logged', () => service.err().includes('the log archive failed'));
    await until('the metric shows it', async () => (await waiting()) > 0);
    expect(await createVolume(service, key, 'meanwhile')).toBe(200);
    expect(await stop(service)).toBe(0);
    // The disk of the archive is not mounted at the next start.
    const again = await serveArchived(at('data'), archive, '--metrics-port', '0');
    expect(await createVolume(again, key, 'without')).toBe(200);
    renameSync(at('away'), archive);
    await archived(at('data'), root);
    // A segment of another database in its place is not replaced.
    const next = segmentAfter(await archived(at('data'), root));
    const foreign = segmentFile(root, next);
    writeFileSync(foreign, spawnSync('gzip', ['-c'], { input: 'of another database' }).stdout);
    expect(await createVolume(again, key, 'more')).toBe(200);
    await switchSegment(at('data'));
    const log = () => readFileSync(at('data/postgres.log'), 'utf8');
    await until('it is refused', () => log().includes('has another content, and is not replaced'));
    expect(await createVolume(again, key, 'and-more')).toBe(200);
    rmSync(foreign);
    await archived(at('data'), root);
    const names = await volumeNames(again, key);
    const { rows } = await momentOf(at('data'));
    expect(await stop(again)).toBe(0);
    await restoreTo(root, at('restored'));
    expect(await rowsIn(at('restored'))).toEqual(rows);
    expect(names).toEqual(expect.arrayContaining(['before', 'meanwhile', 'without', 'more', 'and-more']));
  });

  test('has every key that a moment needs, also after old keys are dropped', async () => {
    const { service, key, root } = await begin();
    const body = { url: 'https://receiver.example/hook' };
    const { status, body: made } = await call(service, 'POST', '/v1/webhooks', { key, body });
    expect(status, JSON.stringify(made)).toBeLessThan(300);
    const { at: time, rows } = await momentOf(at('data'));
    const old = readFileSync(at('data/secret-keys'), 'utf8').trim();
    await runJson(['secrets', 'rotate', '--drop-old', '--data-dir', at('data')]);
    const current = readFileSync(at('data/secret-keys'), 'utf8').trim();
    expect(current).not.toContain(old);
    await until('the keys are archived', () => {
      const kept = readFileSync(join(root, 'keys', 'secret-keys'), 'utf8');
      return kept === `${current}\n${old}\n`;
    });
    await archived(at('data'), root);
    expect(await stop(service)).toBe(0);
    await restoreTo(root, at('restored'), time);
    expect(await rowsIn(at('restored'))).toEqual(rows);
    await restoreTo(root, at('latest'));
    for (const name of ['restored', 'latest']) expect(await stop(await serve(at(name)))).toBe(0);
  });

  test('is for the embedded database, in a directory that exists, and ends without the option', async () => {
    const refused = async (...args: string[]) =>
      run(['serve', '--json', '--port', '0', '--runtime', 'simulated', ...args]);
    expectRefused(
      await refused(
        '--data-dir',
        at('a'),
        '--wal-archive-dir',
        at('x'),
        '--database-url',
        'postgres://nowhere/x',
      ),
      '--wal-archive-dir is for the embedded database',
    );
    expectRefused(
      await refused('--data-dir', at('b'), '--wal-archive-dir', at('nowhere')),
      'does not exist: create it, or mount its disk',
    );
    const { service } = await begin();
    expect(await stop(service)).toBe(0);
    expect(await stop(await serve(at('data')))).toBe(0);
    expect(existsSync(at('data/wal-archive.json'))).toBe(false);
    // The log has a gap now, so a new archive begins.
    expect(await stop(await serveArchived(at('data'), at('archive')))).toBe(0);
    expect(readdirSync(at('archive'))).toHaveLength(2);
  });
});
