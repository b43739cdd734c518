import { spawnSync } from 'node:child_process';
import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { expectRefused, run, runJson } from '../support/cli.js';

const UNIT = '/etc/systemd/system/sandkeep.service';
const USERS = '/etc/sysusers.d/sandkeep.conf';
const ENVIRONMENT = '/etc/sandkeep/sandkeep.env';
const RUNTIMES = ['simulated', 'kubernetes', 'docker', 'microvm'];

let folder: string;
let root: string;
let count = 0;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-install-'));
});
beforeEach(() => {
  root = join(folder, String(count++));
});
afterAll(() => rmSync(folder, { recursive: true }));

const install = (...args: string[]) => run(['install', '--systemd', '--root', root, ...args]);
const fileAt = (path: string) => join(root, path);
const read = (path: string) => readFileSync(fileAt(path), 'utf8');

describe('sandkeep install --systemd', () => {
  test('writes the unit, the user and an environment file that only root may read', async () => {
    const args = ['install', '--systemd', '--root', root, '--runtime', 'simulated'];
    const { files, next } = await runJson(args);
    expect(files).toEqual([UNIT, USERS, ENVIRONMENT].map((path) => ({ path, outcome: 'written' })));
    expect(next.slice(0, 2)).toEqual(['systemd-sysusers', 'systemctl daemon-reload']);
    expect(read(UNIT)).toContain(
      `ExecStart=${process.execPath} ${join(PACKAGE_ROOT, 'bin/sandkeep')} serve --runtime simulated --data-dir /var/lib/sandkeep\n`,
    );
    expect(read(UNIT)).toContain('\nUser=sandkeep\n');
    expect(statSync(fileAt(ENVIRONMENT)).mode & 0o777).toBe(0o600);
    const again = await runJson(args);
    expect(again.files.map(({ outcome }: any) => outcome)).toEqual(['unchanged', 'unchanged', 'kept']);
  });

  test('runs as root for Docker only, and makes no user then', async () => {
    expect((await install('--runtime', 'docker')).code).toBe(0);
    expect(read(UNIT)).not.toMatch(/^(User|ProtectSystem|PrivateTmp)=/m);
    expect(() => read(USERS)).toThrow('ENOENT');
  });

  test('replaces its own older files, and refuses those that were changed by hand', async () => {
    await install('--runtime', 'simulated');
    expect((await install('--runtime', 'kubernetes')).code).toBe(0);
    expect(read(UNIT)).toContain('--runtime kubernetes');
    appendFileSync(fileAt(UNIT), 'Nice=5\n');
    const changed = read(UNIT);
    expectRefused(
      await install('--runtime', 'simulated'),
      /sandkeep\.service was changed by hand.*--force$/m,
    );
    expectRefused(await install('--remove'), /does not remove it/);
    expect(read(UNIT)).toBe(changed);
    expect((await install('--runtime', 'simulated', '--force')).code).toBe(0);
    expect(read(UNIT)).not.toContain('Nice=5');
  });

  test('puts the URL of the database into the environment file only, and never prints it', async () => {
    const url = 'postgres://keeper:S3cret$Pw"@db/sandkeep';
    const dry = await install('--runtime', 'simulated', '--database-url', url, '--dry-run');
    expect([dry.code, dry.out.includes('S3cret')]).toEqual([0, false]);
    expect(() => read(UNIT)).toThrow('ENOENT');
    const { out } = await install('--runtime', 'simulated', '--database-url', url);
    expect([out, read(UNIT)].join('')).not.toContain('S3cret');
    expect(read(ENVIRONMENT)).toContain('\nDATABASE_URL="postgres://keeper:S3cret\\$Pw\\"@db/sandkeep"\n');
    expectRefused(
      await install('--runtime', 'simulated', '--database-url', 'postgres://other/db'),
      /sandkeep\.env exists.*edit DATABASE_URL/,
    );
    chmodSync(fileAt(ENVIRONMENT), 0o644);
    expectRefused(await install('--runtime', 'docker'), 'run "chmod 0600 /etc/sandkeep/sandkeep.env"');
    expect(read(UNIT)).toContain('--runtime simulated');
  });

  test('removes the unit and the user, and keeps the secrets', async () => {
    await install('--runtime', 'simulated');
    const { files } = await runJson(['install', '--systemd', '--remove', '--root', root]);
    expect(files).toEqual([
      { path: UNIT, outcome: 'removed' },
      { path: USERS, outcome: 'removed' },
      { path: ENVIRONMENT, outcome: 'kept' },
    ]);
    expect(() => read(UNIT)).toThrow('ENOENT');
    expect((await runJson(['install', '--systemd', '--remove', '--root', root])).files[0].outcome).toBe(
      'absent',
    );
  });

  test('refuses incomplete and contradictory calls', async () => {
    expectRefused(await run(['install', '--root', root, '--runtime', 'docker']), 'add --systemd');
    expectRefused(
      await install(),
      /name one with --runtime docker, --runtime kubernetes, --runtime microvm, --runtime simulated/,
    );
    expectRefused(await install('--runtime', 'auto'), /the rights of the unit depend on the runtime/);
    expectRefused(await install('--remove', '--dry-run'), '--dry-run does not go with --remove');
    expectRefused(
      await run(['install', '--systemd', '--runtime', 'docker', '--root', '/proc/none']),
      /cannot use \/etc\/systemd\/system\/sandkeep\.service/,
    );
  });

  test('quotes paths as systemd reads them', async () => {
    await install('--runtime', 'simulated', '--data-dir', '/srv/sand keep/100%"$x');
    expect(read(UNIT)).toContain('--data-dir "/srv/sand keep/100%%\\"$$x"\n');
    expect(read(UNIT)).toContain('ReadWritePaths="/srv/sand keep/100%%\\"$x"\n');
  });
});

const hasAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0;
const isRequired = process.env['SANDKEEP_TEST_SYSTEMD'] === 'required';
if (!hasAnalyze && !isRequired)
  console.warn('the tests of the units are SKIPPED: there is no systemd-analyze (Debian: systemd)');

describe.skipIf(!hasAnalyze && !isRequired)('the unit', () => {
  const page = readFileSync(join(PACKAGE_ROOT, 'docs', 'installing.md'), 'utf8');
  const documented = (runtime: string) =>
    Number(new RegExp(`^\\| \`${runtime}\` .*\\| ([\\d.]+) +\\|$`, 'm').exec(page)?.[1]);

  test.each(RUNTIMES)('for %s is valid, and as exposed as the documents say at most', async (runtime) => {
    await install('--runtime', runtime);
    const verified = spawnSync('systemd-analyze', ['verify', fileAt(UNIT)], { encoding: 'utf8' });
    expect([verified.status, verified.stderr]).toEqual([0, '']);
    const args = ['security', '--offline=true', '--no-pager', fileAt(UNIT)];
    const { stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    const exposure = Number(/exposure level for sandkeep\.service: ([\d.]+)/.exec(stdout)?.[1]);
    expect(exposure, stderr).toBeGreaterThan(0);
    expect(exposure).toBeLessThanOrEqual(documented(runtime));
  });
});
