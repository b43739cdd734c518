import { hash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
let eventId: string;
const PAGE = { path: '/v1/events', query: { limit: 2 } };
/** No organization has events of that time. */
const EMPTY = { path: '/v1/events', query: { until: '2020-01-01T00:00:00Z' } };
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  for (const name of ['one', 'two', 'three']) await client.post('/v1/volumes', { name });
  eventId = (await get(PAGE)).body.data[0].id;
});
afterAll(() => service.close());

interface Asked {
  path: string;
  query?: Record<string, string | number>;
}

const get = ({ path, query = {} }: Asked, by = client) => by.get(path, query);
const ask = ({ path, query = {} }: Asked, tag: string, by = client) =>
  by.request('GET', path, { query, headers: { 'if-none-match': tag } });
const event = (): Asked => ({ path: `/v1/events/${eventId}` });

test('an event and a page of events have a strong tag, and 304 for a caller that has it', async () => {
  for (const asked of [PAGE, event()]) {
    const whole = await get(asked);
    const tag = whole.headers.get('etag')!;
    expect(tag).toMatch(/^"[\w-]{43}"$/);
    expect((await get(asked)).headers.get('etag')).toBe(tag);
    const kept = { etag: tag, 'cache-control': 'private, no-cache', vary: 'authorization, cookie' };
    expect(Object.fromEntries(whole.headers)).toMatchObject(kept);
    for (const named of [tag, `W/${tag}`, `"other", ${tag}`, '*']) {
      const same = await ask(asked, named);
      expect([same.status, same.text]).toEqual([304, '']);
      expect(Object.fromEntries(same.headers)).toMatchObject(kept);
      expect(same.headers.get('content-type')).toBeNull();
    }
    for (const named of ['', '"other"', tag.slice(1, -1), `"${hash('sha256', whole.text, 'base64url')}"`]) {
      const again = await ask(asked, named);
      expect([again.status, again.text]).toEqual([200, whole.text]);
    }
  }
});

test('a page has another tag when it has other events, or another form', async () => {
  const { headers } = await get(PAGE);
  const tag = headers.get('etag')!;
  expect((await ask({ ...PAGE, query: { limit: 1 } }, tag)).status).toBe(200);
  await client.post('/v1/volumes', { name: 'four' });
  const changed = await ask(PAGE, tag);
  expect(changed.status).toBe(200);
  expect(changed.headers.get('etag')).not.toBe(tag);
  expect(changed.body.data[0].event_type).toBe('volume_created');
});

test('a tag gives nothing to another organization, or to a key that may not read', async () => {
  const other = await service.newOrg();
  // These two pages have the same bytes.
  const [own, others] = [await get(EMPTY), await get(EMPTY, other)];
  expect(own.text).toBe(others.text);
  expect((await ask(EMPTY, own.headers.get('etag')!, other)).status).toBe(200);
  const tag = (await get(event())).headers.get('etag')!;
  for (const named of [tag, '*']) {
    expect((await ask(event(), named, other)).status).toBe(404);
  }
  const narrow = await client.post('/v1/keys', { name: 'narrow', scopes: ['sandboxes:read'] });
  const headers = { 'if-none-match': '*' };
  const refused = await client.request('GET', PAGE.path, { key: narrow.body.key, headers });
  expect([refused.status, refused.headers.get('etag')]).toEqual([403, null]);
  expect(refused.headers.get('cache-control')).toBe('no-store');
  const unknown = await client.request('GET', PAGE.path, { key: null, headers });
  expect(unknown.status).toBe(401);
});
