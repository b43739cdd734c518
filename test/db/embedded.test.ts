import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import {
  call,
  cleanUp,
  contend,
  copyFolder,
  createVolume,
  databaseOf,
  fingerprint,
  inDatabase,
  isReady,
  kill,
  launch,
  launchServe,
  makeDatabaseFolder,
  makeUsed,
  ready,
  serve,
  stop,
  tcpPortsOf,
  until,
  untilGuarded,
  untilStopped,
  volumeNames,
  writeVolumes,
  type Launched,
  type LaunchOptions,
  type Served,
} from '../support/processes.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = { uid: 65534, gid: 65534 };

describe.skipIf(process.platform !== 'linux')('the embedded database (the tests need /proc)', () => {
  /** A data directory after a first start and a clean stop, and the key that start printed. */
  let used: string;
  let key: string;
  let folder: string;
  let dataDir: string;

  beforeAll(async () => {
    ({ used, key } = await makeUsed());
  });
  beforeEach(() => {
    folder = makeDatabaseFolder();
    dataDir = join(folder, 'data');
  });
  afterEach(() => cleanUp(folder));
  afterAll(() => cleanUp(dirname(used)));

  /** A service on a copy of the used directory. */
  async function serveUsed(options?: LaunchOptions): Promise<Served> {
    copyFolder(used, dataDir);
    return serve(dataDir, options);
  }

  /** The program exits at once with the reason in one line. */
  async function expectRefused(path: string, reason: RegExp, options?: LaunchOptions): Promise<void> {
    const refused = launchServe(path, options);
    expect((await refused.exited).code).toBe(1);
    expect(refused.err()).toMatch(new RegExp(`^sandkeep: .*${reason.source}.*\\n$`));
  }

  const listOrgs = (path: string) => launch(['org', 'list', '--json', '--data-dir', path]);

  async function expectOrgs(commands: Launched[]): Promise<void> {
    for (const command of commands) {
      expect(await command.exited, command.err()).toEqual({ code: 0, signal: null });
      expect(JSON.parse(command.out())).toMatchObject([{ slug: 'default' }]);
    }
  }

  describe('at a start', () => {
    test('creates everything in an empty directory, prints a key once, and keeps the data for the next start', async () => {
      const service = await serve(dataDir);
      expect(service.firstKey).toMatch(/^skp_/);
      expect(await createVolume(service, service.firstKey!, 'kept')).toBe(200);
      expect(await stop(service)).toBe(0);

      const next = await serve(dataDir);
      expect(next.firstKey).toBeUndefined();
      expect(await volumeNames(next, service.firstKey!)).toContain('kept');
    });

    test('refuses a cluster of another major version, and changes nothing', async () => {
      copyFolder(used, dataDir);
      const cluster = join(dataDir, 'postgres');
      writeFileSync(join(cluster, 'PG_VERSION'), '17\n');
      writeFileSync(join(cluster, 'postmaster.pid'), `1\n${cluster}\n`);
      const before = fingerprint(cluster);
      await expectRefused(
        dataDir,
        /made by PostgreSQL 17 and this Sandkeep brings PostgreSQL 18: run "sandkeep backup <file>" with/,
      );
      expect(fingerprint(cluster)).toBe(before);
    });

    test('refuses a folder "postgres" that is not a cluster, and changes nothing', async () => {
      mkdirSync(join(dataDir, 'postgres'), { recursive: true });
      writeFileSync(join(dataDir, 'postgres', 'precious'), 'not ours');
      await expectRefused(
        dataDir,
        /\/postgres is not empty and has no PG_VERSION, so it is not a database: restore/,
      );
      expect(readFileSync(join(dataDir, 'postgres', 'precious'), 'utf8')).toBe('not ours');
    });

    test('refuses a path too long for a unix socket', async () => {
      dataDir = join(folder, 'x'.repeat(100));
      await expectRefused(
        dataDir,
        / is \d+ bytes too long for a unix socket in it: choose a shorter --data-dir/,
      );
    });

    test('refuses a data directory that is a file', async () => {
      writeFileSync(dataDir, 'a file');
      await expectRefused(dataDir, /the data directory .* cannot be used: it is a file/);
      expect(readFileSync(dataDir, 'utf8')).toBe('a file');
    });

    test('works below a folder that only its owner may enter, and keeps the modes', async () => {
      chmodSync(folder, 0o700);
      mkdirSync(dataDir);
      chmodSync(dataDir, 0o1777);
      const service = await serve(dataDir);
      expect(await isReady(service)).toBe(true);
      expect([folder, dataDir].map((path) => statSync(path).mode & 0o7777)).toEqual([0o700, 0o1777]);
    });

    test('works as a user other than root, and denies access to other users', async ({ skip }) => {
      skip(!isRoot, 'only root can become another user');
      const look = spawnSync('test', ['-x', process.cwd()], NOBODY);
      skip(look.status !== 0, 'the user "nobody" cannot enter this checkout');
      mkdirSync(dataDir, { mode: 0o700 });
      spawnSync('chown', [`${NOBODY.uid}:${NOBODY.gid}`, dataDir]);
      const service = await serve(dataDir, { user: NOBODY });
      expect(await createVolume(service, service.firstKey!, 'a')).toBe(200);
      for (const pid of databaseOf(dataDir).all) expect(statSync(`/proc/${pid}`).uid).toBe(NOBODY.uid);

      chmodSync(dataDir, 0o711);
      await expectRefused(dataDir, /cannot be used: EACCES/, { user: { uid: 65533, gid: 65533 } });
    });
  });

  describe('under a running service', () => {
    let service: Served;

    beforeAll(async () => {
      service = await serve(used);
    });
    afterAll(async () => expect(await stop(service)).toBe(0));

    test('is fully durable', async () => {
      await inDatabase(used, async (client) => {
        for (const name of ['fsync', 'synchronous_commit', 'full_page_writes']) {
          const { rows } = await client.query(`show ${name}`);
          expect(rows[0], name).toEqual({ [name]: 'on' });
        }
      });
    });

    test('opens no TCP port', () => {
      expect(tcpPortsOf([service.pid])).toEqual([Number(new URL(service.url).port)]);
      const { all } = databaseOf(used);
      expect(all.length).toBeGreaterThan(4);
      expect(tcpPortsOf(all)).toEqual([]);
    });

    test('serves five commands at once', async () => {
      const { postmaster } = databaseOf(used);
      await expectOrgs(Array.from({ length: 5 }, () => listOrgs(used)));
      expect(databaseOf(used).postmaster).toBe(postmaster);
    });

    test('refuses a second serve with the name of the first, even a hanging one', async () => {
      const reason = new RegExp(`in use by "sandkeep serve" \\(process ${service.pid}\\)`);
      await expectRefused(used, reason);
      kill('SIGSTOP', service.pid);
      await expectRefused(used, reason).finally(() => kill('SIGCONT', service.pid));
      expect(await isReady(service)).toBe(true);
    });
  });

  describe('with several contenders', () => {
    test('goes to one of four first starts in an empty directory, and the others name it', async () => {
      const all = Array.from({ length: 4 }, () => launchServe(dataDir));
      const served = all.map(async (one) => ready(one, dataDir).catch(() => undefined));
      const [winner, ...more] = (await Promise.all(served)).filter((one) => one !== undefined);
      expect(more).toEqual([]);
      for (const loser of all.filter(({ pid }) => pid !== winner!.pid)) {
        expect((await loser.exited).code).toBe(1);
        expect(loser.err()).toContain(`is in use by "sandkeep serve" (process ${winner!.pid})`);
      }
      expect(await isReady(winner!)).toBe(true);
    });

    test('serves two commands without a service in turn, and stops afterwards', async () => {
      copyFolder(used, dataDir);
      await expectOrgs([listOrgs(dataDir), listOrgs(dataDir)]);
      expect(databaseOf(dataDir).all).toEqual([]);
      expect(readdirSync(join(dataDir, 'run'))).toEqual([]);
    });

    test('left by a killed owner goes to exactly one of eight contenders, every time', async () => {
      mkdirSync(dataDir);
      const contenders = await Promise.all(Array.from({ length: 8 }, async () => contend(dataDir)));
      try {
        for (let round = 0; round < 20; round += 1) {
          const results = await Promise.all(contenders.map(async (contender) => contender.take()));
          const winner = results.indexOf(true);
          const expected = results.map((_, index) => index === winner);
          expect([winner >= 0, results], `round ${round}`).toEqual([true, expected]);
          const killed = contenders[winner]!.process;
          // The kernel frees the lock when the process is gone.
          const gone = once(killed, 'exit');
          killed.kill('SIGKILL');
          await gone;
          contenders[winner] = await contend(dataDir);
        }
      } finally {
        for (const contender of contenders) contender.process.kill('SIGKILL');
      }
    });
  });

  describe('after kill -9', () => {
    test('stops by itself after the service is killed, and has every acknowledged row', async () => {
      const service = await serveUsed();
      const writing = writeVolumes(service, key, 4);
      await until('rows are written', () => writing.acknowledged.length >= 100);
      kill('SIGKILL', service.pid);
      const acknowledged = await writing.ended;
      await untilStopped(dataDir);
      expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false);
      await expectKept(acknowledged);
    });

    test('stops by itself after the service is killed at any moment of its start', async () => {
      copyFolder(used, dataDir);
      for (const after of [0, 0, 0, 5, 20]) {
        const starting = launchServe(dataDir);
        await untilGuarded(starting);
        await sleep(after);
        kill('SIGKILL', starting.pid);
        await untilStopped(dataDir);
        expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false);
      }
    });

    test('is stopped by the next start after the service and its guards are killed, and has every acknowledged row', async () => {
      await expectOrphanReplaced({});
    });

    test('has every acknowledged row in a container, where root may not inspect processes of other users', async ({
      skip,
    }) => {
      skip(!isRoot, 'only root can give up the right');
      const under = ['setpriv', '--bounding-set=-sys_ptrace'];
      skip(spawnSync(under[0]!, ['--version']).status !== 0, 'there is no setpriv here');
      await expectOrphanReplaced({ under });
    });

    async function expectOrphanReplaced(options: LaunchOptions): Promise<void> {
      const service = await serveUsed(options);
      const writing = writeVolumes(service, key, 4);
      await until('rows are written', () => writing.acknowledged.length >= 20);
      const orphan = databaseOf(dataDir).postmaster!;
      // The service is paused first: it would notice the end of its guard and start another server.
      kill('SIGSTOP', service.pid);
      kill('SIGKILL', ...databaseOf(dataDir).guards, service.pid);
      const acknowledged = await writing.ended;
      await sleep(200);
      expect(databaseOf(dataDir).postmaster).toBe(orphan);

      await expectKept(acknowledged, options);
      expect(databaseOf(dataDir).postmaster).not.toBe(orphan);
    }

    test('has every acknowledged row at the next start after all processes are killed', async () => {
      const service = await serveUsed();
      const writing = writeVolumes(service, key, 4);
      await until('rows are written', () => writing.acknowledged.length >= 100);
      await killEverything(service);
      const acknowledged = await writing.ended;
      expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(true);
      await expectKept(acknowledged);
    });

    test('recovers twice when PostgreSQL alone is killed, and has every acknowledged row', async () => {
      const service = await serveUsed();
      const writing = writeVolumes(service, key, 8);
      for (const atLeast of [100, 200]) {
        await until('rows are written', () => writing.acknowledged.length >= atLeast);
        const { postmaster } = databaseOf(dataDir);
        kill('SIGKILL', postmaster!);
        const refusals: unknown[] = [];
        await until('another server is ready', async () => {
          const { status, body } = await call(service, 'GET', '/readyz');
          expect([200, 503]).toContain(status);
          if (status === 503) refusals.push(body);
          return status === 200 && ![undefined, postmaster].includes(databaseOf(dataDir).postmaster);
        });
        // It may be away for less than the time between two looks. The writes below are refused in any case.
        for (const refusal of refusals)
          expect(refusal).toEqual({
            error: { code: 'not_ready', message: 'the service cannot reach its database', details: null },
          });
      }
      const before = writing.acknowledged.length;
      await until('it takes writes again', () => writing.acknowledged.length > before + 20);
      writing.stop();
      const acknowledged = await writing.ended;
      // A write whose answer was lost with the database gets the error for a retry.
      expect([...new Set(writing.refused)]).toEqual([503]);
      expect(await volumeNames(service, key)).toEqual(expect.arrayContaining(acknowledged));
      expect(await stop(service)).toBe(0);
    });

    test('recovers when the guard alone is killed', async () => {
      const service = await serveUsed();
      const { postmaster, guards } = databaseOf(dataDir);
      kill('SIGKILL', ...guards);
      await until(
        'another server runs',
        () => ![undefined, postmaster].includes(databaseOf(dataDir).postmaster),
      );
      await until('it is ready', () => isReady(service));
      expect(await stop(service)).toBe(0);
    });

    test('starts again after a kill during initdb, although initdb still runs', async () => {
      const cluster = join(dataDir, 'postgres');
      const partial = () => readdirSync(dataDir).filter((name) => name.startsWith('postgres.partial'));
      const isMaking = () =>
        existsSync(dataDir) && partial().some((name) => existsSync(join(dataDir, name, 'global')));
      // A kill can come too late, when this process waits for a processor.
      for (let attempt = 0; attempt < 5; attempt += 1) {
        const starting = launchServe(dataDir);
        await until('initdb works', () => isMaking() || existsSync(cluster), 120_000, 1);
        kill('SIGKILL', starting.pid);
        await starting.exited;
        if (!existsSync(cluster)) break;
        await untilStopped(dataDir);
        rmSync(dataDir, { recursive: true });
      }
      expect(existsSync(cluster)).toBe(false);

      const service = await serve(dataDir);
      expect(partial()).toEqual([]);
      expect(await createVolume(service, service.firstKey!, 'a')).toBe(200);
    });

    async function killEverything(service: Served): Promise<void> {
      // The service is paused first: it would start another server.
      kill('SIGSTOP', service.pid);
      kill('SIGKILL', ...databaseOf(dataDir).all, service.pid);
      await service.exited;
    }

    async function expectKept(acknowledged: string[], options?: LaunchOptions): Promise<void> {
      const service = await serve(dataDir, options);
      expect(await volumeNames(service, key)).toEqual(expect.arrayContaining(acknowledged));
      expect(await createVolume(service, key, 'afterwards')).toBe(200);
    }

    describe('with a pid file that names another process', () => {
      let other: ChildProcess | undefined;
      afterEach(() => other?.kill('SIGKILL'));

      /** Runs as the user of PostgreSQL, in the folder of the cluster. */
      function spawnOther(script: string): ChildProcess {
        copyFolder(used, dataDir);
        const cwd = join(dataDir, 'postgres');
        const { uid, gid } = statSync(cwd);
        return spawn('sh', ['-c', script], { uid, gid, cwd });
      }

      /** Writes the files of a killed server: the pid of the postmaster, then its place and start time. */
      function leaveFiles(pid: number): void {
        const [cluster, run] = [join(dataDir, 'postgres'), join(dataDir, 'run')];
        const lines = [pid, cluster, 1_700_000_000, 5432, run, '', '  123456    123456', 'ready   ', ''];
        writeFileSync(join(cluster, 'postmaster.pid'), lines.join('\n'));
        writeFileSync(join(run, '.s.PGSQL.5432.lock'), lines.slice(0, 5).join('\n'));
      }

      test('starts, and does not signal that process', async () => {
        other = spawnOther('exec sleep 600');
        leaveFiles(other.pid!);
        await expectOrgs([listOrgs(dataDir)]);
        expect([other.exitCode, other.signalCode]).toEqual([null, null]);
      });

      test('starts when that process is a zombie', async () => {
        other = spawnOther('sleep 0.1 & echo $!; exec sleep 600');
        const [line] = (await once(other.stdout!, 'data')) as [Buffer];
        const status = `/proc/${Number(line)}/status`;
        await until('it is a zombie', () => /^State:\s+Z/m.test(readFileSync(status, 'utf8')));
        leaveFiles(Number(line));
        await expectOrgs([listOrgs(dataDir)]);
      });
    });
  });
});
