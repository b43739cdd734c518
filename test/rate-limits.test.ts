import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../src/events/actor.js';
import { createKey, type NewKey } from '../src/keys/create.js';
import { makeKey } from '../src/keys/secret.js';
import { DEFAULT_SETTINGS } from '../src/context.js';
import type { Client } from './support/client.js';
import { startTestService, type TestService } from './support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  // 30 requests in ten seconds.
  service = await startTestService({ worker: false, settings: { rateLimit: 3, failedAuthLimit: 20 } });
  client = await service.newOrg();
});
afterAll(() => service.close());

test('what is left is said with every answer, and what is too much is refused until the time is over', async () => {
  const first = await client.get('/v1/me/org');
  expect(first.headers.get('ratelimit-policy')).toBe('"key";q=30;w=10');
  expect(first.headers.get('ratelimit')).toMatch(/^"key";r=29;t=\d+$/);
  expect(first.headers.get('retry-after')).toBeNull();
  for (let count = 0; count < 29; count += 1) expect((await client.get('/v1/me/org')).status).toBe(200);
  const refused = await client.get('/v1/me/org');
  expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
  expect(refused.headers.get('ratelimit')).toMatch(/^"key";r=0;t=\d+$/);
  const wait = Number(refused.headers.get('retry-after'));
  expect(wait).toBeGreaterThanOrEqual(1);
  expect(wait).toBeLessThanOrEqual(10);
  // Another key is not held back by it.
  const other: NewKey = await createKey(service.ctx.pool, client.org.id, 'other', operator('test'));
  expect((await client.request('GET', '/v1/me/org', { key: other.key })).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, wait * 1000));
  expect((await client.get('/v1/me/org')).status).toBe(200);
}, 20_000);

test('an address that tries keys is told to wait, and a good key is still taken from it', async () => {
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

test('unless said, fifty clients in a wait can poll ten times a second with one key', () => {
  expect(DEFAULT_SETTINGS.rateLimit).toBeGreaterThanOrEqual(50 * 10);
});
