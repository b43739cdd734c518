import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectReachable, expectRefused, PROGRAM, run, runJson, start } from '../support/cli.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-config-'));
  // The embedded database may run as another user.
  chmodSync(folder, 0o755);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
function makeFile(text: string, mode = 0o600): string {
  files += 1;
  const path = join(folder, `config-${files}.yaml`);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

function makeDataDir(text: string): string {
  files += 1;
  const dataDir = join(folder, `data-${files}`);
  mkdirSync(dataDir);
  writeFileSync(join(dataDir, 'sandkeep.yaml'), text, { mode: 0o600 });
  return dataDir;
}

async function shown(args: readonly string[], env: Record<string, string> = {}): Promise<any> {
  const rows = await runJson(['config', 'show', ...args], { env, cwd: folder });
  return Object.fromEntries(rows.map(({ option, ...row }: any) => [option, row]));
}

describe('sandkeep config show', () => {
  test('names the source of each value', async () => {
    const config = makeFile('port: 1\nhost: ::1\nrate-limit: 7\nwebhook-allow: [10.0.0.0/8, 192.168.1.1]\n');
    const env = { SANDKEEP_CONFIG: config, SANDKEEP_PORT: '2', SANDKEEP_HOST: '127.0.0.2' };
    const options = await shown(['--port', '3'], env);
    expect(options).toMatchObject({
      config: { value: config, from: 'environment', name: 'SANDKEEP_CONFIG' },
      port: { value: 3, from: 'flag', name: '--port' },
      host: { value: '127.0.0.2', from: 'environment', name: 'SANDKEEP_HOST' },
      'rate-limit': { value: 7, from: 'file', name: config },
      'webhook-allow': { value: ['10.0.0.0/8', '192.168.1.1'], from: 'file', name: config },
      'failed-auth-limit': { value: 300, from: 'default', name: null },
      'price-book': { value: null, from: 'default', name: null },
    });
    const { out } = await run(['config', 'show', '--port', '3'], { env });
    expect(out).toMatch(/^port +3 +flag --port$/m);
    expect(out).toMatch(new RegExp(`^rate-limit +7 +file ${config}$`, 'm'));
    expect(out).toMatch(/^capacity-vcpus +\(eight for each CPU of the machine\) +default$/m);
  });

  test('hides secrets from each source', async () => {
    const url = 'postgres://keeper:S3cretPw@db.example/sandkeep';
    const config = makeFile(`database-url: ${url}\nevent-keys: S3cretPw\nsecret-keys: S3cretPw\n`);
    const flags = ['--database-url', url, '--event-keys', 'S3cretPw', '--secret-keys', 'S3cretPw'];
    const env = { DATABASE_URL: url, SANDKEEP_EVENT_KEYS: 'S3cretPw', SANDKEEP_SECRET_KEYS: 'S3cretPw' };
    for (const [args, variables] of [
      [['--config', config], {}],
      [flags, {}],
      [[], env],
    ] as const) {
      const options = await shown(args, variables);
      expect(options['database-url'].value).toBe('postgres://keeper:(hidden)@db.example/sandkeep');
      expect(options['secret-keys'].value).toBe('(hidden)');
      const words = await run(['config', 'show', ...args], { env: variables });
      expect(JSON.stringify([options, words])).not.toContain('S3cretPw');
    }
  });

  test('a switch can be turned off, and a list emptied, by each higher source', async () => {
    const config = makeFile('webhook-http: true\nwebhook-allow: [10.0.0.0/8]\n');
    expect((await shown(['--config', config]))['webhook-http'].value).toBe(true);
    expect((await shown(['--config', config, '--no-webhook-http']))['webhook-http'].value).toBe(false);
    const env = { SANDKEEP_CONFIG: config, SANDKEEP_WEBHOOK_HTTP: 'off', SANDKEEP_WEBHOOK_ALLOW: '' };
    const options = await shown([], env);
    expect([options['webhook-http'].value, options['webhook-allow'].value]).toEqual([false, []]);
    expect((await shown(['--webhook-http'], env))['webhook-http'].value).toBe(true);
  });

  test('a relative path begins in the directory of the file; a default in the data directory', async () => {
    const config = makeFile('price-book: prices.json\ndata-dir: data\n');
    const options = await shown(['--config', config, '--secret-keys-file', 'keys']);
    expect(options['price-book'].value).toBe(join(folder, 'prices.json'));
    expect(options['volumes-dir'].value).toBe(join(folder, 'data', 'volumes'));
    expect(options['secret-keys-file'].value).toBe('keys');
  });

  test('the file in the data directory is read, also by commands, and --config replaces it', async () => {
    const dataDir = makeDataDir('port: 5\n');
    expect(await shown(['--data-dir', dataDir])).toMatchObject({
      config: { value: join(dataDir, 'sandkeep.yaml'), from: 'default' },
      port: { value: 5, from: 'file' },
    });
    const other = ['--data-dir', dataDir, '--config', '/dev/null'];
    expect((await shown(other))['port']).toMatchObject({ value: 8080, from: 'default' });
    const faulty = makeDataDir('prot: 5\n');
    expectRefused(await run(['org', 'list', '--data-dir', faulty]), 'there is no option "prot"');
  });

  test('JSON is read, indented by tabs, too', async () => {
    const config = makeFile('{\n\t"port": 9,\n\t"docker-allow": ["host"]\n}\n');
    expect(await shown(['--config', config])).toMatchObject({
      port: { value: 9 },
      'docker-allow': { value: ['host'] },
    });
  });
});

test('an unknown variable is a warning that names the nearest, and the command works', async () => {
  const { code, out, err } = await run(['config', 'check'], { env: { SANDKEEP_PROT: '1' }, cwd: folder });
  expect({ code, out }).toEqual({ code: 0, out: 'the configuration is valid; file: none\n' });
  expect(err).toBe(
    'sandkeep: the environment variable SANDKEEP_PROT is not an option; did you mean SANDKEEP_PORT?\n',
  );
});

test('serve takes its options from the file in a data directory that has nothing else', async () => {
  const dataDir = makeDataDir('host: 127.0.0.2\nport: 0\nruntime: simulated\nlog-level: error\n');
  const serving = start([...PROGRAM, 'serve', '--json', '--data-dir', dataDir]);
  await expect.poll(() => serving.out()).toContain('\n');
  const { address, first_key, runtime } = JSON.parse(serving.out());
  expect([address, runtime]).toEqual([expect.stringMatching(/^http:\/\/127\.0\.0\.2:/), 'simulated']);
  await expectReachable(address, first_key.key);
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 0, err: '' });
});
