import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { start } from '../support/cli.js';

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
    expect(await check('check-dependencies.js')).toEqual(none);
    expect(await check('sandkeep')).toEqual(none);
    lock('node_modules/.package-lock.json', { 'node_modules/pg': { version: '8.20.0' } });
    const old = 'sandkeep: pg 8.23.1 is needed and is installed in version 8.20.0: run "npm install"\n';
    expect(await check('check-dependencies.js')).toEqual({ code: 1, out: '', err: old });
    lock('node_modules/.package-lock.json', {});
    const missing = 'sandkeep: pg 8.23.1 is needed and is not installed: run "npm install"\n';
    expect(await check('check-dependencies.js')).toEqual({ code: 1, out: '', err: missing });
  });

  test('is accepted without optional packages, and not checked without a lock file', async () => {
    expect(await check('check-dependencies.js')).toEqual({ code: 0, out: '', err: '' });
    lock('package-lock.json', { ...wanted, 'node_modules/arm': { version: '1.0.0', optional: true } });
    lock('node_modules/.package-lock.json', wanted);
    expect(await check('check-dependencies.js')).toEqual({ code: 0, out: '', err: '' });
  });

  test('is reported in one line when the program was not built', async () => {
    const { code, err } = await check('sandkeep');
    expect([code, err]).toEqual([1, expect.stringMatching(/^sandkeep: [^\n]+: run "npm install"\n$/)]);
  });

  test('is reported before "npm start" builds', () => {
    const { scripts } = JSON.parse(readFileSync(join(PACKAGE_ROOT, 'package.json'), 'utf8'));
    expect(scripts.start).toMatch(/^node bin\/check-dependencies\.js && npm run -s build && /);
  });
});
