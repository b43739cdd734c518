import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BROWSER, postKey } from '../../support/console.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

const BASE = '/tools/sandkeep';
const PAGE =
  '<head><meta name="base-path" content="" /><script src="./assets/main.js"></script><link href="./assets/a.css">';

let directory: string;
let service: TestService;
let below: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-base-'));
  mkdirSync(join(directory, 'assets'));
  writeFileSync(join(directory, 'index.html'), PAGE);
  writeFileSync(join(directory, 'assets', 'main.js'), 'main()');
  service = await startTestService({
    settings: { basePath: BASE, consoleDir: directory, trustedProxies: ['127.0.0.1'] },
  });
  below = service.url + BASE;
});
afterAll(async () => {
  await service.close();
  rmSync(directory, { recursive: true });
});

const bearer = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

test('a proxy may remove the base path from requests or not', async () => {
  const { key } = await service.newOrg();
  for (const url of [service.url, below]) {
    expect((await fetch(`${url}/v1/sandboxes?limit=1`, bearer(key))).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}/v1/unknown`, bearer(key))).status).toBe(404);
  }
  for (const path of [`${BASE}x/v1/sandboxes`, `${BASE}${BASE}/v1/sandboxes`, '/tools/v1/sandboxes']) {
    const { status } = await fetch(service.url + path, bearer(key));
    expect([path, status]).toEqual([path, 404]);
  }
});

test('redirects, documents and the page of the console stay below the base path', async () => {
  const locationOf = async (path: string) => {
    const { url, status, headers } = await fetch(below + path, { headers: BROWSER, redirect: 'manual' });
    return [status, new URL(headers.get('location')!, url).pathname];
  };
  expect(await locationOf('')).toEqual([302, `${BASE}/console`]);
  expect(await locationOf('/')).toEqual([302, `${BASE}/console`]);
  expect(await locationOf('?a=1')).toEqual([302, `${BASE}/console`]);
  expect(await locationOf('/docs')).toEqual([302, `${BASE}/docs/`]);
  expect(await (await fetch(below)).json()).toMatchObject({ docs: `${BASE}/docs/` });
  const document = await fetch(`${below}/openapi.json`);
  const { servers } = (await document.json()) as { servers: { url: string }[] };
  expect(new URL(servers[0]!.url, document.url).pathname).toBe(`${BASE}/`);
  for (const path of ['/console', '/console/sandboxes/web/logs']) {
    const page = await (await fetch(below + path, { headers: BROWSER })).text();
    expect(page).toContain(`<meta name="base-path" content="${BASE}" />`);
    expect([...page.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, address]) => address)).toEqual([
      `${BASE}/console/assets/main.js`,
      `${BASE}/console/assets/a.css`,
    ]);
  }
  expect(await (await fetch(`${below}/console/assets/main.js`)).text()).toBe('main()');
});

test('the cookie of the console is for the base path only', async () => {
  const { key } = await service.newOrg();
  const [plain] = (await postKey(below, key)).headers.getSetCookie();
  expect(plain).toMatch(/^sandkeep_session=sks_\w+; Path=\/tools\/sandkeep; HttpOnly; SameSite=Strict/);
  const signedIn = await postKey(below, key, { 'x-forwarded-proto': 'https' });
  const [secure] = signedIn.headers.getSetCookie();
  // The name with "Host" is for all paths.
  expect(secure).toMatch(/^__Secure-sandkeep_session=sks_\w+; Path=\/tools\/sandkeep; .*; Secure$/);
  const { csrf_token: token } = (await signedIn.json()) as { csrf_token: string };
  const headers = { cookie: secure!.split(';')[0]!, 'x-csrf-token': token };
  expect((await fetch(`${below}/v1/me/org`, { headers })).status).toBe(200);
  const out = await fetch(`${below}/console/session`, { method: 'DELETE', headers });
  expect(out.status).toBe(204);
  expect(out.headers.getSetCookie().map((cookie) => /Path=[^;]*/.exec(cookie)![0])).toEqual([
    `Path=${BASE}`,
    `Path=${BASE}`,
  ]);
});

test('requests are forwarded to a process without this base path', async () => {
  const back = await startForTest();
  const front = await startForTest({ beside: back, worker: false, settings: { basePath: BASE } });
  const client = await back.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('a'), {
    start: true,
    wait_for: 'running',
  });
  const answer = await fetch(`${front.url}${BASE}/v1/sandboxes/${body.id}/logs`, bearer(client.key));
  expect(answer.status).toBe(200);
  await answer.body!.cancel();
});
