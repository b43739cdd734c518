import { cpSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { start } from '../support/cli.js';

/** The scripts of `bin` run before the build, so they are no TypeScript. */
async function load<F>(file: string, name: string): Promise<F> {
  const module = (await import(pathToFileURL(join(PACKAGE_ROOT, 'bin', file)).href)) as Record<string, F>;
  return module[name]!;
}

const isBuildOld = await load<(root: URL) => boolean>('build-age.js', 'isBuildOld');
const findStale = await load<(root: URL) => string | undefined>('check-dependencies.js', 'findStale');

let checkout: string;

beforeEach(() => {
  checkout = mkdtempSync(join(tmpdir(), 'sandkeep-checkout-'));
  cpSync(join(PACKAGE_ROOT, 'bin'), join(checkout, 'bin'), { recursive: true });
  writeFileSync(join(checkout, 'package.json'), '{"type":"module"}');
});
afterEach(() => rmSync(checkout, { recursive: true, force: true }));

type Packages = Record<string, { version?: string; optional?: true }>;

function lock(file: string, packages: Packages): void {
  mkdirSync(join(checkout, 'node_modules'), { recursive: true });
  writeFileSync(join(checkout, file), JSON.stringify({ packages }));
}

function check(program: string) {
  return start([process.execPath, join(checkout, 'bin', program)]).ended;
}

describe('a checkout with dependencies that differ from its lock file', () => {
  const wanted: Packages = { '': {}, 'node_modules/pg': { version: '8.23.1' } };

  test('names a missing package and the remedy in one line', async () => {
    lock('package-lock.json', wanted);
    const none = {
      code: 1,
      out: '',
      err: 'sandkeep: the dependencies are not installed: run "npm install"\n',
    };
    expect(await check('start.js')).toEqual(none);
    expect(await check('sandkeep')).toEqual(none);
    lock('node_modules/.package-lock.json', { 'node_modules/pg': { version: '8.20.0' } });
    const old = 'sandkeep: pg 8.23.1 is needed and is installed in version 8.20.0: run "npm install"\n';
    expect(await check('start.js')).toEqual({ code: 1, out: '', err: old });
    lock('node_modules/.package-lock.json', {});
    const missing = 'sandkeep: pg 8.23.1 is needed and is not installed: run "npm install"\n';
    expect(await check('start.js')).toEqual({ code: 1, out: '', err: missing });
  });

  test('is accepted without optional packages, and not checked without a lock file', () => {
    const root = pathToFileURL(`${checkout}/`);
    expect(findStale(root)).toBeUndefined();
    lock('package-lock.json', { ...wanted, 'node_modules/arm': { version: '1.0.0', optional: true } });
    lock('node_modules/.package-lock.json', wanted);
    expect(findStale(root)).toBeUndefined();
  });

  test('is reported in one line when the program was not built', async () => {
    const { code, err } = await check('sandkeep');
    expect([code, err]).toEqual([1, expect.stringMatching(/^sandkeep: [^\n]+: run "npm install"\n$/)]);
  });
});

describe('the build that "npm start" serves', () => {
  const SOURCES = [
    'src/lib/page.ts',
    'console/index.html',
    'scripts/build.ts',
    'tsconfig.json',
    'package-lock.json',
  ];
  let root: URL;

  function write(file: string, time: number): void {
    const path = join(checkout, file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, '');
    utimesSync(path, time, time);
  }

  beforeEach(() => {
    root = pathToFileURL(`${checkout}/`);
    for (const source of SOURCES) write(source, 1_000);
    for (const folder of ['src', 'src/lib', 'console', 'scripts'])
      utimesSync(join(checkout, folder), 1_000, 1_000);
  });

  test('is old when it was never made, and not when nothing changed since', () => {
    expect(isBuildOld(root)).toBe(true);
    write('dist/program.stamp', 2_000);
    expect(isBuildOld(root)).toBe(false);
  });

  test.each(SOURCES)('is old after a change of %s', (source) => {
    write('dist/program.stamp', 2_000);
    write(source, 3_000);
    expect(isBuildOld(root)).toBe(true);
  });

  test('is old after a source was deleted', () => {
    write('dist/program.stamp', 2_000);
    rmSync(join(checkout, 'src/lib/page.ts'));
    expect(isBuildOld(root)).toBe(true);
  });
});
