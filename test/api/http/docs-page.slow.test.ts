import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, request as send, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openapi } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
const PREFIX = '/tools/sandkeep';

const CHROMIUM = '/usr/bin/chromium';
/** The tests are skipped with a message without a browser, and fail with SANDKEEP_TEST_DOCKER=required, as in CI. */
const testBrowser =
  existsSync(CHROMIUM) || process.env['SANDKEEP_TEST_DOCKER'] === 'required'
    ? test
    : (name: string, body: () => Promise<void>) =>
        test.skip(`${name} — SKIPPED: there is no ${CHROMIUM}`, body);

let service: TestService;
let proxy: Server;
let behindProxy: string;

beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { console: false } });
  proxy = await startProxy(new URL(service.url));
  behindProxy = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${PREFIX}`;
});
afterAll(async () => {
  proxy.closeAllConnections();
  proxy.close();
  await service.close();
});

/** A reverse proxy that serves the service below a path prefix, which it removes. Every other path is 404. */
async function startProxy(target: URL): Promise<Server> {
  const server = createServer((incoming, outgoing) => {
    const { url = '/', method, headers } = incoming;
    if (!url.startsWith(`${PREFIX}/`)) {
      outgoing.writeHead(404).end('outside of the prefix');
      return;
    }
    const { hostname, port } = target;
    const onward = send({ hostname, port, method, headers, path: url.slice(PREFIX.length) }, (answer) => {
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
    });
    incoming.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

describe('the address of the service', () => {
  test('sends a browser to the API reference by a relative redirect', async () => {
    const answer = await fetch(`${service.url}/`, { headers: { accept: BROWSER }, redirect: 'manual' });
    expect(answer.status).toBe(302);
    expect(answer.headers.get('location')).toBe('docs/');
    expect(answer.headers.get('vary')).toBe('accept');
  });

  test.each([
    ['curl', '*/*'],
    ['a client of JSON', 'application/json'],
    ['no header', undefined],
  ])('gives %s the addresses of the reference', async (_, accept) => {
    const answer = await fetch(`${service.url}/`, { headers: accept === undefined ? {} : { accept } });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual({ service: 'sandkeep', docs: 'docs/', openapi: 'openapi.json' });
  });

  test('refuses other methods', async () => {
    const answer = await fetch(`${service.url}/`, { method: 'POST' });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  });
});

describe.each([
  ['directly', () => service.url],
  ['behind a proxy with a path prefix', () => behindProxy],
])('the API reference %s', (_, base) => {
  test.each(['/', '/docs', '/docs/', '/docs?lang=en', '/docs/?lang=en', '/docs/static/index.html'])(
    'opens at %s with all its files',
    async (path) => {
      const page = await fetch(`${base()}${path}`, { headers: { accept: BROWSER } });
      expect(page.status).toBe(200);
      // The page appends names to its own address.
      expect(page.url).toBe(`${base()}/docs/`);
      const files = [...(await page.text()).matchAll(/(?:href|src)="([^"]+)"/g)].map(([, name]) => name!);
      expect(files.length).toBeGreaterThan(4);
      for (const name of files) {
        const file = await fetch(new URL(name, page.url));
        expect([name, file.status]).toEqual([name, 200]);
        await file.arrayBuffer();
      }
    },
  );

  test.each(['/openapi.json', '/docs/json'])(
    '%s gives the address of the API relative to itself',
    async (path) => {
      const answer = await fetch(`${base()}${path}`);
      const { servers } = (await answer.json()) as { servers: { url: string }[] };
      expect(servers.map(({ url }) => new URL(url, answer.url).href)).toEqual([`${base()}/`]);
    },
  );

  testBrowser('shows its operations in a browser', async () => {
    const home = mkdtempSync(join(tmpdir(), 'sandkeep-browser-'));
    try {
      const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'];
      const browser = spawn(
        CHROMIUM,
        [...flags, `--user-data-dir=${home}`, '--virtual-time-budget=20000', '--dump-dom', `${base()}/`],
        { stdio: ['ignore', 'pipe', 'ignore'] },
      );
      let dom = '';
      browser.stdout.on('data', (chunk: Buffer) => (dom += chunk.toString()));
      await once(browser, 'close');
      expect(dom).toContain(openapi.paths['/v1/keys']!['post']!.summary);
    } finally {
      rmSync(home, { recursive: true, force: true });
    }
  });
});
