import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { urlOf } from '../support/cli.js';
import { cloneEmpty } from '../support/database.js';
import { freePort } from '../support/free-port.js';

const PAGE = 'docs/operations.md';
const BLOCK = /^```sh\n(.*?)^```$/gms;
/** A program of Debian that only one command of the page needs. */
const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
if (!hasPromtool) {
  console.warn(`"promtool" of ${PAGE} is SKIPPED: there is no such program (Debian: prometheus)`);
}

let folder: string;
let database: Awaited<ReturnType<typeof cloneEmpty>>;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-operations-'));
  database = await cloneEmpty(inject('server'));
});
afterAll(async () => {
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** The places of the page, and those of this test. */
async function places(): Promise<Map<string, string>> {
  const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder];
  const tarball = execFileSync('npm', args, { cwd: PACKAGE_ROOT, encoding: 'utf8' }).trim();
  return new Map([
    ['npm install --global sandkeep', `npm install --global ${join(folder, tarball)}`],
    ['/var/lib', join(folder, 'lib')],
    ['/var/backups', join(folder, 'backups')],
    ['postgres://sandkeep@db.example.com/sandkeep', `'${urlOf(database.address)}'`],
    ['8080', String(await freePort())],
    ['8082', String(await freePort())],
    ['9100', String(await freePort())],
    ['9101', String(await freePort())],
    // It fails while a busy machine renews the lease of the worker late.
    ['sandkeep status', 'until sandkeep status; do sleep 1; done'],
    ...(hasPromtool ? [] : ([['promtool check config', 'cat']] as const)),
  ]);
}

test('every command of the page about operations works, from an empty folder', async () => {
  const blocks = [...readFileSync(join(PACKAGE_ROOT, PAGE), 'utf8').matchAll(BLOCK)].map(([, text]) => text!);
  expect(blocks.length).toBeGreaterThanOrEqual(10);
  let script = blocks.map((text, index) => `echo "=== block ${index + 1}" >&2\n${text}`).join('\n');
  for (const [ofPage, ofTest] of await places()) {
    expect(script).toContain(ofPage);
    script = script.replaceAll(ofPage, ofTest);
  }
  const own = Object.entries(process.env).filter(
    ([name]) =>
      !/^(npm_(?!config_registry$)|NPM_|SANDKEEP_|OTEL_|DATABASE_URL|KUBECONFIG|INIT_CWD)/.test(name),
  );
  const prefix = join(folder, 'npm');
  const bash = spawn('bash', ['-e', '-u', '-o', 'pipefail', '-c', `trap 'kill $(jobs -p)' ERR\n${script}`], {
    cwd: folder,
    env: {
      ...Object.fromEntries(own),
      HOME: folder,
      PATH: `${join(prefix, 'bin')}:${process.env['PATH']}`,
      NPM_CONFIG_PREFIX: prefix,
      // Other tests use the engine of this machine at the same time.
      SANDKEEP_RUNTIME: 'simulated',
      SANDKEEP_DOCKER_SOCKET: join(folder, 'no-docker'),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  for (const stream of [bash.stdout, bash.stderr])
    stream.on('data', (chunk: Buffer) => (out += String(chunk)));
  const [code] = (await once(bash, 'close')) as [number];
  expect(code, out).toBe(0);
  expect(out).toContain(`=== block ${blocks.length}`);
  expect(out).toMatch(/^sandkeep_database_up 1$/m);
  expect(out).toMatch(/ healthy /);
});
