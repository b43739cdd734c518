import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BROWSER, postKey } from '../../support/console.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

const SCRIPT = 'console.log("console");'.repeat(100);
const PAGE = '<!doctype html><title>Console</title>';

let service: TestService;
let directory: string;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-console-'));
  const built = join(directory, 'console');
  mkdirSync(join(built, 'assets'), { recursive: true });
  writeFileSync(join(directory, 'secret.txt'), 'outside');
  writeFileSync(join(built, '.hidden'), 'hidden');
  for (const [name, text] of [
    ['index.html', PAGE],
    ['favicon.svg', '<svg xmlns="http://www.w3.org/2000/svg"/>'],
    ['assets/main-0a1b2c3d.js', SCRIPT],
  ] as const) {
    writeFileSync(join(built, name), text);
    writeFileSync(join(built, `${name}.br`), brotliCompressSync(text));
    writeFileSync(join(built, `${name}.gz`), gzipSync(text));
  }
  service = await startTestService({ worker: false, settings: { consoleDir: built } });
});
afterAll(async () => {
  await service.close();
  rmSync(directory, { recursive: true });
});

/** `fetch` normalizes paths and decodes bodies. */
function get(
  path: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; headers: NodeJS.Dict<string | string[]>; body: Buffer }> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(service.url, { path, headers }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () =>
        resolve({ status: answer.statusCode!, headers: answer.headers, body: Buffer.concat(chunks) }),
      );
    });
    request.on('error', reject).end();
  });
}

test.each(['/console', '/console/', '/console/sandboxes/web?tab=logs', '/console/session/x'])(
  '%s is the page',
  async (path) => {
    const { status, headers, body } = await get(path, BROWSER);
    expect([status, body.toString()]).toEqual([200, PAGE]);
    expect(headers).toMatchObject({
      'cache-control': 'no-cache',
      'content-type': 'text/html; charset=utf-8',
    });
  },
);

test('the page allows neither frames, nor inline scripts, nor other hosts', async () => {
  const { headers } = await get('/console');
  expect(headers).toMatchObject({
    'content-security-policy':
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    'x-frame-options': 'DENY',
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': expect.stringContaining('camera=()'),
  });
});

test('assets are immutable, and a missing one is no page', async () => {
  const { status, headers, body } = await get('/console/assets/main-0a1b2c3d.js');
  expect([status, body.toString()]).toEqual([200, SCRIPT]);
  expect(headers).toMatchObject({
    'cache-control': 'public, max-age=31536000, immutable',
    'content-type': 'application/javascript; charset=utf-8',
    vary: 'accept-encoding',
  });
  for (const path of [
    '/console/assets/main-other.js',
    '/console/assets/',
    '/console/assets/main-0a1b2c3d.js.br',
  ]) {
    const missing = await get(path);
    expect([path, missing.status]).toEqual([path, 404]);
    expect(missing.headers['cache-control']).toBe('no-store');
  }
});

test.each([
  ['br, gzip', 'br', brotliCompressSync(SCRIPT)],
  ['gzip', 'gzip', gzipSync(SCRIPT)],
  ['identity', undefined, Buffer.from(SCRIPT)],
])('a client that accepts %s gets the encoding %s', async (accepted, encoding, expected) => {
  const { headers, body } = await get('/console/assets/main-0a1b2c3d.js', { 'accept-encoding': accepted });
  expect(headers['content-encoding']).toBe(encoding);
  expect(headers['content-type']).toBe('application/javascript; charset=utf-8');
  expect(body.equals(expected)).toBe(true);
});

test('a known file is not sent again', async () => {
  const { headers } = await get('/console');
  const again = await get('/console', { 'if-none-match': String(headers['etag']) });
  expect([again.status, again.body.length]).toEqual([304, 0]);
});

test.each([
  '/console/../secret.txt',
  '/console/..%2fsecret.txt',
  '/console/%2e%2e/secret.txt',
  '/console/%2e%2e%2fsecret.txt',
  '/console/..%5csecret.txt',
  '/console//../../secret.txt',
  '/console/assets/..%2f..%2fsecret.txt',
  '/console/assets/../../../secret.txt',
  '/console/%00',
  '/console/.hidden',
  '/console/index.html%00.js',
  '/console/%2fetc%2fpasswd',
])('%s does not leave the directory', async (path) => {
  const { status, body } = await get(path);
  expect([200, 400, 404]).toContain(status);
  expect(body.toString()).not.toMatch(/outside|hidden|root:/);
  if (status === 200) expect(body.toString()).toBe(PAGE);
});

test('other methods are refused', async () => {
  for (const path of ['/console', '/console/x', '/console/session']) {
    const answer = await fetch(service.url + path, { method: 'PUT' });
    expect([path, answer.status]).toEqual([path, 405]);
  }
});

test('a browser is sent from the root to the console', async () => {
  const browser = await fetch(service.url, { headers: BROWSER, redirect: 'manual' });
  expect([browser.status, browser.headers.get('location')]).toEqual([302, 'console']);
  expect(await (await fetch(service.url)).json()).toMatchObject({ service: 'sandkeep' });
});

describe('without the console', () => {
  test('there is no route of it, and no cookie is accepted', async () => {
    const off = await startForTest({ worker: false, settings: { console: false, consoleDir: directory } });
    for (const path of ['/console', '/console/', '/console/assets/x.js', '/console/session']) {
      expect([path, (await fetch(off.url + path)).status]).toEqual([path, 404]);
    }
    const { key } = await off.newOrg();
    expect((await postKey(off.url, key)).status).toBe(404);
    const browser = await fetch(off.url, { headers: BROWSER, redirect: 'manual' });
    expect(browser.headers.get('location')).toBe('docs/');
    const on = await startForTest({ worker: false, beside: off, settings: { consoleDir: directory } });
    const [cookie] = (await postKey(on.url, key)).headers.getSetCookie()[0]!.split(';');
    const ask = (url: string) => fetch(`${url}/v1/me/org`, { headers: { cookie: cookie! } });
    expect([(await ask(on.url)).status, (await ask(off.url)).status]).toEqual([200, 401]);
  });

  test('that is not built, the page says how to build it', async () => {
    const bare = await startForTest({
      worker: false,
      settings: { consoleDir: join(directory, 'nothing') },
    });
    const answer = await fetch(`${bare.url}/console`, { headers: BROWSER });
    expect([answer.status, answer.headers.get('content-type')]).toEqual([503, 'text/html; charset=utf-8']);
    expect(await answer.text()).toContain('npm run build');
    expect(bare.logs.join('\n')).toContain('the console is not built');
  });
});
