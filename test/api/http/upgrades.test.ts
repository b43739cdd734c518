import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { exchangeRaw, requestHead, WEBSOCKET } from '../../support/raw-connection.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const H2C = [
  'Connection: Upgrade, HTTP2-Settings',
  'Upgrade: h2c',
  'HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA',
];

const head = (line: string, headers: string[]) => requestHead(line, client.key, ...headers);
const exchange = (...parts: string[]) => exchangeRaw(service.url, parts, 100);
const names = async () => (await client.get('/v1/sandboxes')).body.data.map(({ name }: any) => name);

test('a request that offers HTTP/2 is answered in HTTP/1.1, with its body', async () => {
  expect(await exchange(head('GET /v1/sandboxes', H2C))).toMatch(/^HTTP\/1\.1 200 /);
  const type = 'Content-Type: application/json';
  const body = (name: string) => JSON.stringify(smallRequest(name));
  const sized = head('POST /v1/sandboxes', [...H2C, type, `Content-Length: ${body('sized').length}`]);
  expect(await exchange(sized + body('sized'))).toMatch(/^HTTP\/1\.1 200 /);
  const late = head('POST /v1/sandboxes', [...H2C, type, `Content-Length: ${body('late1').length}`]);
  expect(await exchange(late, body('late1').slice(0, 9), body('late1').slice(9))).toMatch(/^HTTP\/1\.1 200 /);
  const chunked = head('POST /v1/sandboxes', [...H2C, type, 'Transfer-Encoding: chunked']);
  const size = body('chunked').length.toString(16);
  expect(await exchange(chunked, `${size}\r\n${body('chunked')}\r\n`, '0\r\n\r\n')).toMatch(
    /^HTTP\/1\.1 200 /,
  );
  expect((await names()).toSorted()).toEqual(['chunked', 'late1', 'sized']);
});

test('a request that asks for a WebSocket with a body or by POST is answered as without', async () => {
  const body = '{"name":';
  const post = head('POST /v1/sandboxes', [
    ...WEBSOCKET,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ]);
  const answer = await exchange(post + body);
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(answer).toContain('invalid_json');
  const withBody = head('GET /v1/me/org', [...WEBSOCKET, 'Content-Length: 2']);
  expect(await exchange(`${withBody}{}`)).toMatch(/^HTTP\/1\.1 200 /);
});

test('a WebSocket for a route that takes none gets the answer of the route, and the connection closes', async () => {
  for (const [path, status] of [
    ['/v1/me/org', 200],
    ['/nowhere', 404],
    ['/v1/sandboxes/x/terminal', 400],
  ] as const) {
    const answer = await exchange(head(`GET ${path}`, WEBSOCKET));
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer.toLowerCase()).toContain('connection: close');
  }
});

test('bytes behind a request to upgrade are never taken for a request', async () => {
  const body = JSON.stringify(smallRequest('hidden'));
  const headers = ['Content-Type: application/json', `Content-Length: ${body.length}`];
  const hidden = head('POST /v1/sandboxes', headers) + body;
  expect(await exchange(head('GET /v1/me/org', WEBSOCKET) + hidden)).toMatch(/^HTTP\/1\.1 200 /);
  expect(await exchange(head('GET /v1/me/org', H2C) + hidden)).toMatch(/^HTTP\/1\.1 /);
  expect(await names()).not.toContain('hidden');
});

test.each([
  ['a WebSocket', WEBSOCKET],
  ['HTTP/2', H2C],
])(
  'a request for %s behind one that is not answered ends its connection, and nothing else',
  async (_, wanted) => {
    const upgrade = requestHead('GET /v1/sandboxes', 'skp_none', ...wanted);
    for (const count of [1, 10]) {
      for (const key of [client.key, 'skp_none'])
        await exchange(requestHead('GET /v1/events', key).repeat(count) + upgrade);
    }
    expect((await client.get('/v1/sandboxes')).status).toBe(200);
  },
);
