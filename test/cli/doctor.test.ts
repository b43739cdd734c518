import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NO_DOCKER, PROGRAM, run, start, urlOf, type Ended, type RunOptions } from '../support/cli.js';
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

describe('doctor', () => {
  const findings = (out: string) =>
    Object.fromEntries(JSON.parse(out).map(({ check, ...finding }: any) => [check, finding]));
  const isEnded = /^(20|21|23|25)\./.test(process.versions.node);

  test('names each missing part with its remedy, and the service works without Docker', async () => {
    // Creates the key files.
    service.ctx.keyring();
    service.ctx.eventKeys();
    const where = ['--data-dir', service.directory];
    const { code, out, err } = await onService(['doctor', '--json', ...where, ...NO_DOCKER]);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(findings(out)).toEqual({
      keys: {
        state: 'missing',
        found: expect.stringContaining('"sandkeep backup" does'),
        remedy: 'sandkeep backup <path>',
      },
      system: { state: 'ok', found: expect.stringMatching(/\w/) },
      node: isEnded
        ? {
            state: 'missing',
            found: expect.stringMatching(/^Node [\d.]+ works, and has had no security fixes since .*: 24 is/),
            remedy: expect.stringContaining('24'),
          }
        : { state: 'ok', found: `Node ${process.versions.node}` },
      files: expect.objectContaining({ found: expect.stringMatching(/^\d+ descriptors/) }),
      database: { state: 'ok', found: expect.stringMatching(/^external PostgreSQL \d+/) },
      role: { state: 'ok', found: expect.stringMatching(/ has sandkeep_requests$/) },
      runtime: { state: 'ok', found: 'none yet, as the installation was never served' },
      docker: {
        state: 'missing',
        found: expect.stringMatching(/: sandboxes can only be simulated$/),
        remedy: expect.stringMatching(/docker/i),
      },
      'data disk': { state: 'ok', found: expect.stringMatching(/^[\d,]+ MiB free in .+ in reserve$/) },
      'volumes disk': { state: 'ok', found: expect.stringMatching(/^[\d,]+ MiB free in .+ in reserve$/) },
      passkeys: {
        state: 'ok',
        found:
          'members sign in with them at http://localhost alone; --public-url is for browsers elsewhere; 0 passkeys in the database',
      },
    });
    const words = await onService(['doctor', ...where, ...NO_DOCKER]);
    expect(words.code).toBe(0);
    const rows = words.out.trimEnd().split('\n');
    const heads = rows.filter((row) => !/^ +→ /.test(row)).map((row) => row.slice(0, 14).trimEnd());
    expect(heads).toEqual([
      '✓ system',
      isEnded ? '– node' : '✓ node',
      expect.stringMatching(/^[✓–] files$/),
      '✓ database',
      '✓ role',
      '✓ runtime',
      '– keys',
      '– docker',
      '✓ data disk',
      '✓ volumes disk',
      '✓ passkeys',
    ]);
    const failing = rows.flatMap((row, index) => (/^[–✗]/.test(row) ? [rows[index + 1]] : []));
    expect(failing.length).toBeGreaterThan(1);
    for (const remedy of failing) expect(remedy).toMatch(/^ {15}→ \S/);
  });

  test('reads a data directory without creating it', async () => {
    const dataDir = join(folder, 'looked-at');
    const { code, out } = await run(['doctor', '--json', '--data-dir', dataDir, ...NO_DOCKER]);
    expect(code).toBe(0);
    expect(findings(out)['database'].found).toBe(`embedded PostgreSQL in ${dataDir}; not created yet`);
    expect(existsSync(dataDir)).toBe(false);
  });

  test('distinguishes a Docker engine without permission from an absent or stopped one', async () => {
    const socket = join(folder, 'docker.sock');
    const found = async (under: readonly string[] = []) => {
      const command = [...under, ...PROGRAM, 'doctor', '--json', '--docker-socket', socket];
      const { out } = await start(command, { cwd: folder, env: { DATABASE_URL: url } }).ended;
      const { found, remedy } = findings(out)['docker'];
      return `${found}. ${remedy}`;
    };
    expect(await found()).toMatch(/^no Docker engine answers on .*ENOENT.* only be simulated\. .*docker/);
    const engine = createServer();
    await new Promise<void>((resolve) => engine.listen(socket, resolve));
    chmodSync(socket, 0);
    const other = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];
    expect(await found(process.getuid?.() === 0 ? other : [])).toMatch(
      /^this user may not connect to the Docker engine on .* \(EACCES\): sandboxes .*usermod -aG docker /,
    );
    await new Promise((resolve) => engine.close(resolve));
    // A socket without a listener.
    const kept = spawnSync(process.execPath, [
      '-e',
      `require('net').createServer().listen('${socket}', () => process.kill(process.pid, 'SIGKILL'))`,
    ]);
    expect(kept.signal).toBe('SIGKILL');
    expect(await found()).toMatch(/ECONNREFUSED.* systemctl start docker$/);
  });

  test('distinguishes a data directory without permission from an absent one', async () => {
    const dataDir = join(folder, 'private');
    mkdirSync(dataDir, { mode: 0o700 });
    const other =
      process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
    if (other.length === 0) chmodSync(dataDir, 0);
    const found = async (path: string) => {
      const command = [...other, ...PROGRAM, 'doctor', '--json', '--data-dir', path, ...NO_DOCKER];
      const { out, code } = await start(command, { cwd: '/' }).ended;
      return [code, findings(out)['database'].found];
    };
    expect(await found(dataDir)).toEqual([
      1,
      expect.stringMatching(
        /cannot be used: EACCES.*; run the command as the user of the service, or as root$/,
      ),
    ]);
    expect(await found(join(dataDir, 'data'))).toEqual([1, expect.stringContaining('EACCES')]);
    expect(await found('/proc/none')).toEqual([1, expect.stringContaining('may not create it in /proc')]);
  });

  test.each([
    [
      'postgres://keeper:S3cretPw@127.0.0.1:1/db',
      /^cannot use the database of --database-url: .*ECONNREFUSED/,
    ],
    ['postgres://keeper:S3cretPw@127.0.0.1:99999/db', /^the database URL cannot be read/],
    ['mysql://keeper:S3cretPw@127.0.0.1/db', /^the database URL cannot be read/],
    [
      'postgres://keeper:S3cretPw@127.0.0.1/db?options=-c%20role%3Dkeeper',
      /^the database URL must not have "options"/,
    ],
  ])('reports an unusable database, and exits with an error: %s', async (databaseUrl, found) => {
    const { code, out, err } = await run(['doctor', '--json', ...NO_DOCKER], {
      env: { DATABASE_URL: databaseUrl },
    });
    expect({ code, err }).toEqual({ code: 1, err: '' });
    expect(findings(out)['database']).toEqual({
      state: 'broken',
      found: expect.stringMatching(found),
      remedy: 'psql "$DATABASE_URL", until it connects',
    });
    expect(out).not.toContain('S3cretPw');
  });
});
