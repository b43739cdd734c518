import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { makeKey } from '../../../src/access/key-secret.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Client } from '../../support/client.js';
import { exchangeRaw, openRaw, requestHead } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

const talk = (parts: string | string[], pauseMs = 0, { url } = service) => exchangeRaw(url, parts, pauseMs);

const SECURE = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

describe('the security headers', () => {
  test.each([
    ['an answer', '/v1/sandboxes', 200],
    ['a refusal', '/v1/sandboxes/x', 400],
    ['an unknown route', '/nowhere', 404],
    ['a bad escape', '/v1/sandboxes/%zz', 400],
    ['health', '/healthz', 200],
    ['the API document', '/openapi.json', 200],
  ])('are on %s', async (_, path, status) => {
    const response = await fetch(`${service.url}${path}`, {
      headers: { authorization: `Bearer ${client.key}` },
    });
    expect(response.status).toBe(status);
    // Clients may keep the document, and ask whether it is current.
    const secure = path === '/openapi.json' ? { ...SECURE, 'cache-control': 'no-cache' } : SECURE;
    expect(Object.fromEntries(response.headers)).toMatchObject(secure);
    expect(response.headers.get('x-powered-by')).toBeNull();
    expect(response.headers.get('server')).toBeNull();
    await response.arrayBuffer();
  });

  test('are on a request without a key', async () => {
    const answer = await client.request('GET', '/v1/sandboxes', { key: null });
    expect(answer.status).toBe(401);
    expect(Object.fromEntries(answer.headers)).toMatchObject(SECURE);
  });

  test('are on the answer to bytes that are not HTTP', async () => {
    const text = await talk('HELO example.com\r\n\r\n');
    for (const [name, value] of Object.entries(SECURE)) expect(text).toContain(`${name}: ${value}`);
  });

  test('the API reference may run only its own scripts, and no page may frame it', async () => {
    const response = await fetch(`${service.url}/docs`);
    expect([response.status, response.headers.get('x-frame-options')]).toEqual([200, 'DENY']);
    const policy = response.headers.get('content-security-policy')!;
    expect(policy).toMatch(/script-src 'self'/);
    expect(policy).not.toMatch(/unsafe-(inline|eval)/);
  });
});

describe('every error has the envelope', () => {
  const HOST = 'host: x\r\n';
  const END = 'connection: close\r\n\r\n';
  const POST = `POST /v1/sandboxes HTTP/1.1\r\n${HOST}content-type: application/json\r\n`;
  test.each([
    ['no Host header', `GET /healthz HTTP/1.1\r\n${END}`, 400, 'invalid_request'],
    ['two Host headers', `GET /healthz HTTP/1.1\r\nHost: a\r\nhost: b\r\n${END}`, 400, 'invalid_request'],
    ['no Host header and an unknown route', `GET /nowhere HTTP/1.1\r\n${END}`, 400, 'invalid_request'],
    [
      'an unknown expectation',
      `GET /healthz HTTP/1.1\r\n${HOST}expect: magic\r\n${END}`,
      417,
      'expectation_failed',
    ],
    [
      'an unknown expectation before a body',
      `${POST}expect: 200-ok\r\ncontent-length: 2\r\n\r\n{}`,
      417,
      'expectation_failed',
    ],
    ['TRACE', `TRACE /v1/sandboxes HTTP/1.1\r\n${HOST}${END}`, 405, 'method_not_allowed'],
    ['TRACE of an unknown route', `TRACE /nowhere HTTP/1.1\r\n${HOST}${END}`, 404, 'route_not_found'],
    [
      'a method that nothing here takes',
      `PROPFIND /nowhere HTTP/1.1\r\n${HOST}${END}`,
      404,
      'route_not_found',
    ],
    ['an unknown method of no path', `BREW coffee HTTP/1.1\r\n${HOST}${END}`, 404, 'route_not_found'],
    ['an unknown method of no HTTP', `BREW /v1/sandboxes\r\n${END}`, 400, 'invalid_request'],
    ['CONNECT', `CONNECT example.com:443 HTTP/1.1\r\n${HOST}\r\n`, 501, 'not_supported'],
    ['OPTIONS of the server', `OPTIONS * HTTP/1.1\r\n${HOST}${END}`, 405, 'method_not_allowed'],
    [
      'an upgrade',
      `GET /nowhere HTTP/1.1\r\n${HOST}connection: upgrade\r\nupgrade: h2c\r\n\r\n`,
      404,
      'route_not_found',
    ],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid_request'],
    ['an unknown version', `GET /healthz HTTP/3.0\r\n${HOST}${END}`, 400, 'invalid_request'],
    ['TLS', '\u0016\u0003\u0001\u0000', 400, 'invalid_request'],
    ['a header without a name', `GET /healthz HTTP/1.1\r\n${HOST}: x\r\n${END}`, 400, 'invalid_request'],
    ['a length that is no number', `${POST}content-length: x\r\n\r\n`, 400, 'invalid_request'],
    ['two lengths', `${POST}content-length: 1\r\ncontent-length: 2\r\n\r\n{}`, 400, 'invalid_request'],
    [
      'a length beside chunks',
      `${POST}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      'invalid_request',
    ],
    [
      'a URL that is too long',
      `GET /${'a'.repeat(20_000)} HTTP/1.1\r\n${HOST}${END}`,
      431,
      'headers_too_large',
    ],
    [
      'a range that a file of the reference does not have',
      `GET /docs/static/index.css HTTP/1.1\r\n${HOST}range: bytes=9999999-\r\n${END}`,
      400,
      'invalid_request',
    ],
    [
      'a name that no file of the reference can have',
      `GET /docs/static/%00 HTTP/1.1\r\n${HOST}${END}`,
      400,
      'invalid_request',
    ],
  ])('%s', async (_name, request, status, code) => {
    const text = await talk(request);
    const [head = '', body = ''] = text.split('\r\n\r\n');
    expect(head.split('\r\n')[0]).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(head).toContain('content-type: application/json; charset=utf-8');
    expect(head).toMatch(/\r\nx-request-id: \S/);
    expect(JSON.parse(body)).toEqual({ error: { code, message: expect.any(String), details: null } });
  });

  test('the server accepts HTTP/1.0 without a Host header, and answers Expect: 100-continue', async () => {
    expect(await talk('GET /healthz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /);
    const expecting = `${POST}expect: 100-continue\r\ncontent-length: 2\r\n`;
    const ofKey = `authorization: Bearer ${client.key}\r\n`;
    expect(await talk([`${expecting}${ofKey}${END}`, '{}'], 50)).toMatch(
      /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 400 /,
    );
    // A client without a key sends no body.
    expect(await talk(`${expecting}\r\n`)).toMatch(/^HTTP\/1.1 401 [^]*\r\nconnection: close\r\n/);
  });
});

describe('a slow client', () => {
  let hurried: TestService;
  beforeAll(async () => {
    hurried = await startTestService({
      worker: false,
      settings: { bodyTimeoutMs: 800 },
      beside: service,
    });
  });
  afterAll(() => hurried.close());

  test('is cut off with 408 while it sends the headers', async () => {
    const began = performance.now();
    const text = await talk(['GET /v1/sandboxes HTTP/1.1\r\n', 'host: x\r\n', 'x-a: b\r\n'], 400, hurried);
    expect(text).toContain('HTTP/1.1 408 ');
    expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n'))).error.code).toBe('request_timeout');
    // Node's default limit is one minute.
    expect(performance.now() - began).toBeLessThan(50_000);
  });

  test('is cut off with 408 while it sends the body', async () => {
    const body = ['content-type: application/json', 'content-length: 100'];
    const head = requestHead('POST /v1/sandboxes', client.key, ...body);
    const text = await talk([`${head}{`, ' ', ' '], 400, hurried);
    expect(text).toContain('HTTP/1.1 408 ');
  });

  test('is cut off while it sends an upload that was refused, as with any other body', async () => {
    const path = '/v1/volumes/0199c0de-0000-7000-8000-000000000000/files/content';
    const head = requestHead(`PUT ${path}`, makeKey(), 'x-msb-file-path: a', 'content-length: 100');
    const text = await talk(`${head}{`, 0, hurried);
    expect(text).toContain('HTTP/1.1 401 ');
  });
});

test('any number of concurrent readiness probes run at most two probes of the database at a time', async () => {
  const { pool } = service.ctx;
  const query = pool.query.bind(pool);
  let [atOnce, most] = [0, 0];
  pool.query = (async (...args: Parameters<typeof query>) => {
    atOnce += 1;
    most = Math.max(most, atOnce);
    return Promise.resolve(query(...args)).finally(() => (atOnce -= 1));
  }) as typeof pool.query;
  try {
    const answers = await Promise.all(Array.from({ length: 50 }, () => fetch(`${service.url}/readyz`)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(most).toBeLessThanOrEqual(2);
  } finally {
    pool.query = query;
  }
});

test('a client that hangs up causes no error: at once, with a key bound to networks, or within a body', async () => {
  const access = { ...FULL_ACCESS, cidrs: ['127.0.0.0/8'] };
  const { key } = await createKey(service.ctx.pool, client.org.id, 'near', operator('test'), access);
  const hangUp = async (request: string) => {
    const { socket, whole } = await openRaw(service.url);
    socket.write(request);
    socket.resetAndDestroy();
    await whole;
  };
  const body = ['content-type: application/json', 'content-length: 9'];
  service.logs.length = 0;
  for (let count = 0; count < 10; count += 1) {
    await hangUp(requestHead('GET /v1/me/org', key));
    await hangUp(`${requestHead('POST /v1/keys', client.key, ...body)}{`);
  }
  await client.get('/v1/me/org');
  await sleep(500);
  expect(service.logs.filter((line) => line.includes('request failed'))).toEqual([]);
});

test.each(['QUERY', 'PROPFIND', 'PURGE', 'LINK', 'BREW', 'TRACE'])(
  '%s names the methods of the path',
  async (method) => {
    for (const [path, allow] of [
      ['/v1/sandboxes?limit=1', 'GET, HEAD, POST'],
      ['/v1/sandboxes/by-name/web', 'DELETE, GET, HEAD, PATCH'],
      ['/v1/volumes/default', 'GET, HEAD'],
      ['/healthz', 'GET, HEAD'],
    ]) {
      const text = await talk(`${method} ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
      expect(text).toMatch(/^HTTP\/1.1 405 /);
      expect(text.split('\r\n')).toContain(`allow: ${allow}`);
    }
  },
);

test('headers above the size limit are refused before authentication', async () => {
  const text = await talk(`GET / HTTP/1.1\r\nhost: x\r\nx: ${'a'.repeat(17_000)}\r\n\r\n`);
  expect(text).toContain('HTTP/1.1 431 ');
});

test('an internal error reveals no details', async () => {
  const broken = await startTestService({ worker: false });
  const victim = await broken.newOrg();
  await broken.ctx.pool.query('alter table volumes rename column labels to lost');
  const answer = await victim.get('/v1/volumes');
  expect([answer.status, answer.body]).toEqual([
    500,
    {
      error: {
        code: 'internal_error',
        message: 'something went wrong on our side',
        details: { request_id: answer.headers.get('x-request-id') },
      },
    },
  ]);
  await broken.close();
});
