import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { VERSION } from '../../src/lib/version.js';
import { makeClient } from '../support/client.js';
import { smallRequest } from '../support/sandbox-requests.js';

/** Licences whose code may be part of a work under Apache-2.0. */
const LICENCES = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
  'Python-2.0',
  'Unlicense',
]);
/** Under MIT, in a form of the field that npm no longer reads. */
const OLD_FORM = ['buildcheck', 'cpu-features', 'ssh2'];

interface Packed {
  filename: string;
  size: number;
  files: { path: string }[];
}

describe('the npm package', () => {
  let directory: string;
  let packed: Packed;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'sandkeep-package-'));
    const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', directory];
    [packed] = JSON.parse(npm(args, PACKAGE_ROOT)) as [Packed];
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  /** As somebody with an empty home, and without the settings of this run of npm. */
  function environment(): NodeJS.ProcessEnv {
    const home = join(directory, 'home');
    mkdirSync(home, { recursive: true });
    const own = Object.entries(process.env).filter(
      ([name]) => !/^(npm_|SANDKEEP_|DATABASE_URL|INIT_CWD)/.test(name),
    );
    const registry = process.env['npm_config_registry'];
    return { ...Object.fromEntries(own), HOME: home, ...(registry ? { npm_config_registry: registry } : {}) };
  }

  function npm(args: readonly string[], cwd: string): string {
    return execFileSync('npm', args, {
      cwd,
      env: environment(),
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  test('has what the program needs, and nothing else', () => {
    const paths = packed.files.map(({ path }) => path);
    const needed = [
      'bin/sandkeep',
      'dist/program/main.js',
      'dist/program/LICENSES.txt',
      'dist/console/index.html',
      'catalogue.json',
      'LICENSE',
    ];
    expect(paths).toEqual(expect.arrayContaining([...needed, 'migrations/0001_first_light.sql']));
    const foreign = paths.filter(
      (path) =>
        !/^(bin|deploy|dist\/program|dist\/console|guest|migrations)\//.test(path) &&
        !['catalogue.json', 'LICENSE', 'README.md', 'package.json'].includes(path),
    );
    expect(foreign).toEqual([]);
    expect(paths.filter((path) => /\.(map|test\.js|tsbuildinfo)$/.test(path))).toEqual([]);
    expect(packed.size).toBeLessThan(3_500_000);
  });

  test('runs by npx in an empty folder, and leaves the folder empty', () => {
    const folder = join(directory, 'npx');
    mkdirSync(folder);
    const archive = join(directory, packed.filename);
    const out = npm(['exec', '--yes', '--package', archive, '--', 'sandkeep', '--version'], folder);
    expect(out.trim()).toBe(VERSION);
    expect(readdirSync(folder)).toEqual([]);
  });

  test('installs into an empty folder, serves, and stops', async () => {
    const folder = join(directory, 'empty');
    mkdirSync(folder);
    npm(['install', '--no-audit', '--no-fund', join(directory, packed.filename)], folder);
    const program = join(folder, 'node_modules', '.bin', 'sandkeep');
    const args = ['serve', '--json', '--runtime', 'simulated', '--port', '0', '--log-level', 'error'];
    const child = spawn(program, args, {
      cwd: folder,
      env: environment(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    const { address, first_key: first } = JSON.parse(line) as {
      address: string;
      first_key: { org: never; id: string; key: string };
    };
    const client = makeClient(address, { org: first.org, key: first.key, keyId: first.id });
    const { body } = await client.post('/v1/sandboxes', smallRequest('packed'), {
      start: true,
      wait_for: 'running',
    });
    expect(body.status, JSON.stringify(body)).toBe('running');
    expect((await fetch(`${address}/console/`)).status).toBe(200);
    child.kill('SIGTERM');
    expect((await exited)[0]).toBe(0);
  });

  test('has only dependencies whose licences allow it, all in a bill of materials', () => {
    const args = ['sbom', '--sbom-format', 'cyclonedx', '--omit', 'dev', '--package-lock-only'];
    const { components } = JSON.parse(npm(args, PACKAGE_ROOT)) as {
      components: { name: string; licenses?: { license?: { id?: string } }[] }[];
    };
    expect(components.length).toBeGreaterThan(50);
    const foreign = components.filter(({ licenses = [] }) => !LICENCES.has(licenses[0]?.license?.id ?? ''));
    expect(foreign.map(({ name }) => name).toSorted()).toEqual(OLD_FORM);
  });

  test('has the licences of the packages whose code it has', () => {
    const text = readFileSync(join(PACKAGE_ROOT, 'dist', 'program', 'LICENSES.txt'), 'utf8');
    const parts = text.split(`\n${'-'.repeat(80)}\n\n`).map((part) => /^(\S+) \S+: (.+)\n/.exec(part)!);
    expect(parts.map(([, name]) => name)).toEqual(expect.arrayContaining(['fastify', 'pg', 'typebox']));
    expect(parts.filter(([, , licence]) => !LICENCES.has(licence!))).toEqual([]);
  });
});
