import type { FastifyRequest } from 'fastify';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { REFUSAL_DELAY_MS } from '../../../src/http/refusal-delays.js';
import { makeKey } from '../../../src/access/key-secret.js';
import { makeLimits } from '../../../src/access/rate-limit.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey, type NewKey } from '../../../src/keys/create.js';
import { normalizeAddress } from '../../../src/lib/cidr.js';
import { DEFAULT_SETTINGS } from '../../../src/settings.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { exchangeRaw, requestHead } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  // 30 requests in ten seconds.
  service = await startTestService({ worker: false, settings: { rateLimit: 3, failedAuthLimit: 20 } });
  client = await service.newOrg();
});
afterAll(() => service.close());

test('each answer states the remaining requests, and requests above the limit are refused until the window ends', async () => {
  const { key, first, rest, took } = await askWithinOneWindow();
  expect(first.headers.get('ratelimit-policy')).toBe('"key";q=30;w=10');
  expect(first.headers.get('ratelimit')).toMatch(/^"key";r=29;t=\d+$/);
  expect(first.headers.get('retry-after')).toBeNull();
  expect(rest.filter(({ status }) => status === 200)).toHaveLength(29);
  const refused = rest.find(({ status }) => status !== 200)!;
  expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
  expect(refused.headers.get('ratelimit')).toMatch(/^"key";r=0;t=\d+$/);
  const wait = Number(refused.headers.get('retry-after'));
  expect(wait).toBeGreaterThanOrEqual(1);
  expect(wait).toBeLessThanOrEqual(10);
  // Refusals come late.
  expect(took).toBeGreaterThan(REFUSAL_DELAY_MS - 10);
  // Another key has its own limit.
  const other: NewKey = await createKey(service.ctx.pool, client.org.id, 'other', operator('test'));
  expect((await client.request('GET', '/v1/me/org', { key: other.key })).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, wait * 1000));
  expect((await client.request('GET', '/v1/me/org', { key })).status).toBe(200);
});

/** Sends a request and 35 more with a new key. Repeats this while a busy machine needs more than one window. */
async function askWithinOneWindow() {
  for (let attempt = 0; ; attempt += 1) {
    const { key } = await createKey(service.ctx.pool, client.org.id, `window-${attempt}`, operator('test'));
    const ask = () => client.request('GET', '/v1/me/org', { key });
    const began = performance.now();
    const first = await ask();
    const rest = await Promise.all(Array.from({ length: 35 }, ask));
    const took = performance.now() - began;
    if (took < 10_000) return { key, first, rest, took };
  }
}

test('a key with too many refusals waiting loses connections, and another organization is answered', async () => {
  // Ten refusals reach the longest delay, which a busy machine does too.
  const settings = { rateLimit: 1, refusalGapMs: 2_000 };
  const flooded = await startTestService({ worker: false, settings, beside: service });
  const { key } = await createKey(service.ctx.pool, client.org.id, 'flood', operator('test'));
  const other = await flooded.newOrg();
  const { hostname, port } = new URL(flooded.url);
  const one = requestHead('GET /v1/me/org', key);
  const sockets = Array.from({ length: 60 }, () => {
    const socket = connect(Number(port), hostname, () => socket.write(one));
    return socket.on('error', () => undefined).resume();
  });
  try {
    await until(
      async () =>
        Promise.resolve(sockets.filter(({ closed, bytesRead }) => closed && bytesRead === 0).length),
      (closed) => closed > 0,
    );
    expect((await other.get('/v1/me/org')).status).toBe(200);
    expect(sockets.some(({ closed }) => !closed)).toBe(true);
  } finally {
    for (const socket of sockets) socket.destroy();
    await flooded.close();
  }
});

test('a service that stops answers waiting refusals at once', async () => {
  const settings = { rateLimit: 1, refusalGapMs: 1_000 };
  const stopped = await startTestService({ worker: false, settings, beside: service });
  const { key } = await createKey(service.ctx.pool, client.org.id, 'stopping', operator('test'));
  let answered = 0;
  const ask = async () => {
    await fetch(`${stopped.url}/v1/me/org`, { headers: { authorization: `Bearer ${key}` } });
    answered += 1;
  };
  // Ten are answered at once.
  const asked = Promise.allSettled(Array.from({ length: 29 }, ask));
  await until(
    () => Promise.resolve(answered),
    (count) => count >= 10,
  );
  // The last refusal would be answered after some 19 seconds.
  const began = performance.now();
  await stopped.close(300_000);
  expect(performance.now() - began).toBeLessThan(15_000);
  await asked;
});

test('an address that tries keys must wait, and a valid key still works from it', async () => {
  const good = await createKey(service.ctx.pool, client.org.id, 'good', operator('test'));
  const tried: number[] = [];
  for (let count = 0; count < 25; count += 1) {
    const { status } = await client.request('GET', '/v1/me/org', { key: makeKey() });
    tried.push(status);
  }
  expect(tried).toEqual([...Array<number>(20).fill(401), ...Array<number>(5).fill(429)]);
  const refused = await client.request('GET', '/v1/me/org', { key: null });
  expect(refused.body.error.code).toBe('rate_limited');
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(refused.headers.get('ratelimit-policy')).toBe('"failures";q=20;w=60');
  expect((await client.request('GET', '/v1/me/org', { key: good.key })).status).toBe(200);
});

test('many forged keys at once take few connections, and valid keys pass between them', async () => {
  const other = await startTestService({ worker: false, settings: { failedAuthLimit: 20 }, beside: service });
  const { pool } = other.ctx;
  const [known, unseen] = [
    await createKey(pool, client.org.id, 'known', operator('test')),
    await createKey(pool, client.org.id, 'unseen', operator('test')),
  ];
  const ask = async (key: string) =>
    (await fetch(`${other.url}/v1/me/org`, { headers: { authorization: `Bearer ${key}` } })).status;
  expect(await ask(known.key)).toBe(200);
  for (let count = 0; count < 20; count += 1) expect(await ask(makeKey())).toBe(401);
  const query = pool.query.bind(pool);
  let [looks, atOnce, most] = [0, 0, 0];
  pool.query = (async (...args: Parameters<typeof query>) => {
    if (!args[0].includes('api_key_replaced_secrets')) return query(...args);
    looks += 1;
    atOnce += 1;
    most = Math.max(most, atOnce);
    return Promise.resolve(query(...args)).finally(() => (atOnce -= 1));
  }) as typeof pool.query;
  try {
    const guesses = [];
    // A thousand keys of one network may wait for a lookup. The valid ones are among them.
    for (let count = 0; count < 18; count += 1)
      guesses.push(pipeline(other.url, Array.from({ length: 50 }, makeKey)));
    const good = [];
    for (let count = 0; count < 10; count += 1) good.push(ask(known.key), ask(unseen.key));
    expect(await Promise.all(good)).toEqual(Array<number>(20).fill(200));
    for (const answers of await Promise.all(guesses)) {
      const others = statusesOf(answers).filter((status) => status !== 401 && status !== 429);
      expect(others).toEqual([]);
    }
    expect(looks).toBeLessThan(500);
    expect(most).toBeLessThanOrEqual(4);
  } finally {
    pool.query = query;
    await other.close();
  }
});

test.each([
  ['requests', '/v1/me/org'],
  ['requests for unknown routes', '/v1/nothing'],
])('a client that sends too many %s on one connection is refused and cut off', async (_, path) => {
  const answers = await pipeline(service.url, Array.from({ length: 300 }, makeKey), path);
  expect(answers).toContain('more than 100 requests are under way on this connection');
  expect(statusesOf(answers).length).toBeLessThan(300);
});

test('the addresses of one IPv6 customer share one limit, and other addresses do not evict its count', () => {
  const limits = makeLimits({ ...DEFAULT_SETTINGS, failedAuthLimit: 3 });
  const fail = (ip: string) => {
    try {
      limits.countFailure({ client: { address: normalizeAddress(ip) } } as FastifyRequest);
      return 'counted';
    } catch {
      return 'refused';
    }
  };
  const tried = [];
  for (const end of ['::1', '::2', ':ffff:ffff:ffff:ffff']) tried.push(fail(`2001:db8:1:2${end}`));
  expect(tried).toEqual(['counted', 'counted', 'counted']);
  expect([fail('2001:db8:1:2::9'), fail('2001:db8:1:3::1')]).toEqual(['refused', 'counted']);
  for (let index = 0; index < 10_000; index += 1) fail(`10.0.${index >> 8}.${index & 255}`);
  expect(fail('2001:db8:1:2::1')).toBe('refused');
  expect(fail('::ffff:10.0.0.1')).toBe('counted');
  expect([fail('10.0.0.1'), fail('10.0.0.1')]).toEqual(['counted', 'refused']);
});

test('with default limits fifty clients can poll ten times a second during a wait with one key', () => {
  expect(DEFAULT_SETTINGS.rateLimit).toBeGreaterThanOrEqual(50 * 10);
});

/** Sends one request with each key at once over one connection. */
const pipeline = (url: string, keys: readonly string[], path = '/v1/me/org') =>
  exchangeRaw(
    url,
    keys.map((key) => requestHead(`GET ${path}`, key)).join('') +
      requestHead(`GET ${path}`, null, 'connection: close'),
  );

const statusesOf = (answers: string): number[] =>
  [...answers.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
