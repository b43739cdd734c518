import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { connectionConfig } from '../../src/db/pool.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import {
  expectReachable,
  expectRefused,
  NO_DOCKER,
  PROGRAM,
  run,
  runJson,
  start,
  urlOf,
  UUID,
  type Ended,
  type RunOptions,
} from '../support/cli.js';
import { withDatabase } from '../support/database.js';
import { clientOf, line, listAll, toText } from '../support/import-lines.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let url: string;
let folder: string;

beforeAll(async () => {
  service = await startTestService({ worker: false });
  url = urlOf(service.database);
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-cli-'));
  // The embedded database may run as another user.
  chmodSync(folder, 0o755);
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs a command on the database of the service. */
function onService(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  return run(args, { cwd: folder, ...options, env: { DATABASE_URL: url } });
}

function json(args: readonly string[], options: RunOptions = {}): Promise<any> {
  return runJson(args, { cwd: folder, ...options, env: { DATABASE_URL: url } });
}

describe('import', () => {
  function history() {
    const org = line.org();
    const sandbox = line.sandbox(org);
    const bad = { kind: 'event' };
    return { org, good: [sandbox, org, line.run(sandbox)], bad };
  }
  const none = { org: 0, sandbox: 0, run: 0, volume: 0, accrual: 0, event: 0 };
  const loaded = { ...none, org: 1, sandbox: 1, run: 1 };

  test('loads a file once, and finds nothing new in it again', async () => {
    const { org, good } = history();
    const file = join(folder, 'history.ndjson');
    writeFileSync(file, toText(good));
    expect(await json(['import', file])).toEqual({
      committed: true,
      lines: 3,
      imported: loaded,
      unchanged: none,
      bad_count: 0,
      bad: [],
    });
    const again = await onService(['import', 'history.ndjson']);
    expect(again).toMatchObject({ code: 0, err: '' });
    expect(again.out).toMatch(/^KIND +NEW +THERE BEFORE\norg +0 +1\nsandbox +0 +1\nrun +0 +1\n/);
    expect(again.out).toMatch(/\n3 lines read, 0 bad\n$/);
    expect(await listAll(await clientOf(service, org), '/v1/sandboxes')).toHaveLength(1);
  });

  test('reads standard input', async () => {
    const { good } = history();
    const result = await json(['import', '-'], { input: toText(good) });
    expect(result).toMatchObject({ committed: true, imported: loaded });
  });

  test('loads nothing from a file with a bad line, and names the line', async () => {
    const { good, bad } = history();
    const input = toText([...good, bad]);
    const words = await onService(['import', '-'], { input });
    expect(words).toEqual({
      code: 1,
      out: '',
      err: 'line 4: id is required\nsandkeep: nothing was loaded: 1 of 4 lines are bad (--skip-bad loads the others)\n',
    });
    const programs = await onService(['import', '-', '--json'], { input });
    expect([programs.code, programs.err]).toEqual([1, '']);
    expect(JSON.parse(programs.out)).toEqual({
      committed: false,
      lines: 4,
      imported: none,
      unchanged: none,
      bad_count: 1,
      bad: [{ line: 4, reason: 'id is required' }],
    });
  });

  test('with --skip-bad loads the other lines, and names the bad one', async () => {
    const { good, bad } = history();
    const { code, out, err } = await onService(['import', '-', '--skip-bad'], {
      input: toText([bad, ...good]),
    });
    expect([code, err]).toEqual([0, 'line 1: id is required\n']);
    expect(out).toMatch(/\nrun +1 +0\n/);
    expect(out).toMatch(/\n4 lines read, 1 bad\n$/);
  });

  test('prints fifty of many bad lines, and counts the others', async () => {
    const { code, err } = await onService(['import', '-'], { input: '?\n'.repeat(60) });
    const rows = err.trimEnd().split('\n');
    expect([code, rows.length]).toEqual([1, 52]);
    expect(rows.slice(49, 51)).toEqual(['line 50: is not JSON', '… and 10 more bad lines']);
  });

  // `script` gives the program a terminal; it is part of every Debian.
  test.skipIf(!existsSync('/usr/bin/script'))('shows a progress bar on a terminal', async () => {
    const { good } = history();
    const file = join(folder, 'with-a-bar.ndjson');
    writeFileSync(file, toText(good));
    const command = [...PROGRAM, 'import', file].map((word) => `'${word}'`).join(' ');
    const { code, out } = await start(
      ['/usr/bin/script', '--quiet', '--return', '--command', command, '/dev/null'],
      {
        env: { DATABASE_URL: url, TERM: 'xterm' },
      },
    ).ended;
    expect(code).toBe(0);
    expect(out).toMatch(/=+ 100% {2}3 lines/);
    expect(out).toContain('3 lines read, 0 bad');
  });
});

describe('migrate', () => {
  const migrations = readdirSync(join(PACKAGE_ROOT, 'migrations'));

  /** Runs `work` with an empty database. */
  async function inEmptyDatabase(work: (databaseUrl: string) => Promise<void>): Promise<void> {
    const name = `sandkeep_empty_${process.pid}_${migrations.length}_${Date.now()}`;
    const admin = new pg.Client(connectionConfig(withDatabase(inject('server'), 'template1')));
    await admin.connect();
    await admin.query(`create database ${name} template template0`);
    try {
      await work(urlOf(withDatabase(inject('server'), name)));
    } finally {
      await admin.query(`drop database ${name} with (force)`);
      await admin.end();
    }
  }

  test('brings an empty database to the schema once from three processes, and then has nothing to do', async () => {
    await inEmptyDatabase(async (databaseUrl) => {
      const env = { DATABASE_URL: databaseUrl };
      const all = await Promise.all([1, 2, 3].map(() => run(['migrate', '--json'], { env })));
      expect(all.map(({ code, err }) => ({ code, err }))).toEqual(all.map(() => ({ code: 0, err: '' })));
      expect(all.flatMap(({ out }) => JSON.parse(out).applied)).toEqual(migrations);
      expect(await run(['migrate'], { env })).toEqual({ code: 0, out: 'the schema is current\n', err: '' });
      expect(await run(['migrate', '--json'], { env })).toEqual({
        code: 0,
        out: '{"applied":[]}\n',
        err: '',
      });
    });
  });

  test('names the applied migrations, and prefers --database-url to DATABASE_URL', async () => {
    await inEmptyDatabase(async (databaseUrl) => {
      const { code, out } = await onService(['migrate', '--database-url', databaseUrl]);
      expect([code, out]).toEqual([0, migrations.map((name) => `applied ${name}\n`).join('')]);
    });
  });

  test('runs one at a time in a data directory from SANDKEEP_DATA_DIR', async () => {
    const dataDir = join(folder, 'data');
    const env = { SANDKEEP_DATA_DIR: dataDir };
    const both = await Promise.all([1, 2].map(() => run(['migrate', '--json'], { env })));
    expect(both.map(({ code, err }) => ({ code, err }))).toEqual(both.map(() => ({ code: 0, err: '' })));
    expect(both.flatMap(({ out }) => JSON.parse(out).applied)).toEqual(migrations);
    const { code, out } = await run(['org', 'list', '--data-dir', dataDir, '--json']);
    expect([code, out]).toEqual([0, '[]\n']);
  });
});

describe('serve', () => {
  async function ready(serving: ReturnType<typeof start>, mark: RegExp): Promise<RegExpExecArray> {
    const ended = serving.ended.then(({ err }) => Promise.reject(new Error(`serve ended:\n${err}`)));
    ended.catch(() => undefined);
    const shown = new Promise<RegExpExecArray>((resolve) => {
      serving.child.stdout.on('data', () => {
        const match = mark.exec(serving.out());
        if (match) resolve(match);
      });
    });
    return Promise.race([shown, ended]);
  }

  test('reads its options from the environment, prints its address, and creates a key at its first start only', async () => {
    const env = {
      SANDKEEP_DATA_DIR: join(folder, 'served'),
      SANDKEEP_PORT: '0',
      SANDKEEP_HOST: '127.0.0.2',
      SANDKEEP_PREVIEW_PORT: '0',
      SANDKEEP_RUNTIME: 'simulated',
      SANDKEEP_LOG_LEVEL: 'error',
      SANDKEEP_WEBHOOK_ALLOW: '10.0.0.0/8',
    };
    const first = start([...PROGRAM, 'serve', '--json'], { env });
    const [text] = await ready(first, /.*\n/);
    const line = JSON.parse(text);
    expect(line).toEqual({
      ready: true,
      address: expect.stringMatching(/^http:\/\/127\.0\.0\.2:\d+$/),
      previews: expect.stringMatching(/^http:\/\/<port>-<sandbox>\.localhost:\d+$/),
      runtime: 'simulated',
      version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
      pid: first.child.pid,
      capacity: { vcpus: availableParallelism() * 8, memory_mib: expect.any(Number), disk_mib: null },
      first_key: {
        org: { id: expect.stringMatching(UUID), name: 'Default', slug: 'default' },
        id: expect.stringMatching(UUID),
        key: expect.stringMatching(/^skp_/),
      },
    });
    await expectReachable(line.address, line.first_key.key);

    // Commands work beside the service, on the same data directory.
    const beside = await run(['key', 'create', '--org', 'default', '--name', 'second', '--json'], { env });
    expect({ code: beside.code, err: beside.err }).toEqual({ code: 0, err: '' });
    const { id, key } = JSON.parse(beside.out);
    await expectReachable(line.address, key);
    expect(await run(['key', 'revoke', id], { env })).toMatchObject({ code: 0, err: '' });
    await vi.waitFor(() => expectReachable(line.address, key, 401), 60_000);
    // The command allows the addresses that the service was started with.
    const where = ['--org', 'default', '--data-dir', env.SANDKEEP_DATA_DIR];
    expect(await run(['webhook', 'create', 'https://10.1.2.3/', ...where])).toMatchObject({
      code: 0,
      err: '',
    });
    const doctor = await run(['doctor', ...NO_DOCKER], { env });
    expect(doctor.out).toContain(`in use by "sandkeep serve" (process ${first.child.pid})`);
    expectRefused(await run(['serve'], { env }), /is in use by "sandkeep serve" \(process \d+\)/);

    first.child.kill('SIGTERM');
    expect(await first.ended).toEqual({ code: 0, out: text, err: '' });

    const second = start([...PROGRAM, 'serve', '--json'], { env });
    const [again] = await ready(second, /.*\n/);
    expect(JSON.parse(again)).not.toHaveProperty('first_key');
    await expectReachable(JSON.parse(again).address, line.first_key.key);
    second.child.kill('SIGINT');
    expect((await second.ended).code).toBe(0);
  });

  test('prints the address, the database, the runtime, and a curl command that works', async () => {
    const dataDir = join(folder, 'in-words');
    const options = ['--port', '0', '--preview-port', '0', '--data-dir', dataDir, ...NO_DOCKER];
    const serving = start([...PROGRAM, 'serve', ...options]);
    const [, key, address] = await ready(
      serving,
      /\n +curl -H 'Authorization: Bearer (\S+)' (\S+)\/v1\/sandboxes\n/,
    );
    await expectReachable(address!, key!);
    expect(serving.out()).toContain(`is ready at ${address}`);
    expect(serving.out()).toContain(`console        ${address}/console\n`);
    expect(serving.out()).toMatch(/database +embedded PostgreSQL in /);
    expect(serving.out()).toMatch(/! no Docker engine answers on \/nonexistent\/docker\.sock/);
    expect(serving.out()).toMatch(/capacity +room for \d+ vCPU, \d+ [GM]iB\n/);
    expect(serving.out()).toMatch(/SIMULATED/);
    // The service gets the signal while connections are being opened.
    serving.child.kill('SIGINT');
    const { code, out, err } = await serving.ended;
    expect([code, out.slice(-9)]).toEqual([0, '\nstopped\n']);
    const lines = err
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.filter(({ level, err: error }) => level > 30 || error)).toEqual([]);
    const migrations = readdirSync(join(PACKAGE_ROOT, 'migrations'));
    const applied = lines.filter(({ msg }) => msg === 'migrations applied');
    expect(applied).toEqual([
      expect.objectContaining({ count: migrations.length, latest: migrations.at(-1) }),
    ]);
  });

  test('names a port in use, and how to choose another', async () => {
    const taken = createServer();
    const port = await new Promise<number>((resolve) =>
      taken.listen(0, '127.0.0.1', () => resolve((taken.address() as { port: number }).port)),
    );
    const refused = await onService(['serve', '--port', String(port), '--runtime', 'simulated', '--json']);
    taken.close();
    expectRefused(
      refused,
      `port ${port} on 127.0.0.1 is taken: choose another with --port, or 0 for a free one`,
    );
  });
});

test('a database server that refuses the connection is quoted, without a stack', async () => {
  const missing = urlOf(withDatabase(inject('server'), 'no_such_database'));
  const refused = await run(['org', 'list'], { env: { DATABASE_URL: missing } });
  expectRefused(refused, 'the database refuses: database "no_such_database" does not exist');
});
