import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addMillis, now } from '../../../src/lib/instant.js';
import { makeClient, type Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
/** How far the clock of the service is ahead, in milliseconds. */
let ahead = 0;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => addMillis(now(), ahead) });
  client = await service.newOrg();
});
afterAll(() => service.close());

async function make(body: Record<string, unknown>, by = client): Promise<Client> {
  const answer = await by.post('/v1/keys', { name: 'made', scopes: ['org:admin'], ...body });
  expect([answer.status, answer.text]).toEqual([200, answer.text]);
  return makeClient(service.url, { org: client.org, key: answer.body.key, keyId: answer.body.id });
}

const expectError = (answer: { status: number; body: any }, status: number, code: string) =>
  expect([answer.status, answer.body.error?.code]).toEqual([status, code]);

const works = async ({ key }: Pick<Client, 'key'>) =>
  (await client.request('GET', '/v1/me/org', { key })).status === 200;

test('a key can be created, is shown once, and can be listed, read and revoked', async () => {
  const asked = {
    name: 'ci',
    scopes: ['sandboxes:write'],
    labels: { team: 'ml' },
    cidrs: ['127.0.0.0/8'],
    expires_at: '2999-01-01T00:00:00Z',
  };
  const { body: made } = await client.post('/v1/keys', asked);
  const { key, ...shown } = made;
  expect(key).toMatch(/^skp_[0-9A-Za-z]{38}$/);
  expect(shown).toEqual({
    ...asked,
    id: made.id,
    prefix: key.slice(0, 12),
    created_at: made.created_at,
    created_by: { kind: 'api_key', api_key_id: client.keyId, name: 'test key' },
    last_used_at: null,
    rotated_at: null,
    previous_secret_until: null,
    revoked_at: null,
  });
  expect((await client.get(`/v1/keys/${made.id}`)).body).toEqual(shown);
  const { body: listed } = await client.get('/v1/keys');
  expect(listed.data.at(-1)).toEqual(shown);
  expect(await works({ key })).toBe(true);
  expect((await client.delete(`/v1/keys/${made.id}`)).body).toEqual({ message: 'the key "ci" is revoked' });
  expect(await works({ key })).toBe(false);
  const { body: revoked } = await client.get(`/v1/keys/${made.id}`);
  expect(revoked).toEqual({ ...shown, revoked_at: expect.any(String) });
  expect((await client.delete(`/v1/keys/${made.id}`)).status).toBe(200);
  const { body: events } = await client.get('/v1/events', { resource_id: made.id });
  expect(events.data.map(({ event_type, actor }: any) => [event_type, actor.api_key_id])).toEqual([
    ['api_key_revoked', client.keyId],
    ['api_key_created', client.keyId],
  ]);
  expect(JSON.stringify([listed, revoked, events])).not.toContain(key.slice(0, 13));
});

test('the list has pages', async () => {
  const fresh = await service.newOrg();
  const ids = [fresh.keyId];
  for (let count = 0; count < 4; count += 1) {
    const { body } = await fresh.post('/v1/keys', { name: `key ${count}`, scopes: ['events:read'] });
    ids.push(body.id);
  }
  const seen: string[] = [];
  let cursor: string | null | undefined;
  do {
    const { body } = await fresh.get('/v1/keys', { limit: 2, ...(cursor ? { cursor } : {}) });
    seen.push(...body.data.map(({ id }: any) => id));
    cursor = body.next_cursor;
  } while (cursor != null);
  expect(seen).toEqual(ids);
});

test.each<[string, Record<string, unknown>]>([
  ['name', { name: ' ' }],
  ['name', { name: 'x'.repeat(201) }],
  ['scopes', { scopes: [] }],
  ['scopes', { labels: { team: 'ml' } }],
  ['scopes', { labels: { team: 'ml' }, scopes: ['sandboxes:read', 'events:read'] }],
  ['labels.service.x', { labels: { 'service.x': '' }, scopes: ['sandboxes:read'] }],
  ['cidrs[1]', { cidrs: ['::1/128', '10.0.0.0/33'] }],
  ['cidrs[0]', { cidrs: ['localhost'] }],
  ['cidrs[0]', { cidrs: ['10.0.0.0/8/8'] }],
  // This network would match nothing: the service reads the address of a socket as IPv4.
  ['cidrs[1]', { cidrs: ['::/0', '::ffff:127.0.0.0/104'] }],
  ['cidrs[0]', { cidrs: ['0:0:0:0:0:FFFF:7f00:1'] }],
  ['expires_at', { expires_at: 'tomorrow' }],
  ['expires_at', { expires_at: '2020-01-01T00:00:00Z' }],
])('an invalid request is refused by %s: %j', async (field, body) => {
  const answer = await client.post('/v1/keys', { name: 'x', scopes: ['org:admin'], ...body });
  expectError(answer, 400, 'invalid_request');
  expect(answer.body.error.details.field).toBe(field);
});

test('a key cannot create a key with more access than its own', async () => {
  const cidrs = ['127.0.0.0/8', '10.0.0.0/8'];
  const expires_at = '2999-01-01T00:00:00Z';
  const own = { scopes: ['keys:write', 'sandboxes:write'], cidrs, expires_at };
  const maker = await make(own);
  for (const [field, body] of [
    ['scopes', { ...own, scopes: ['org:admin'] }],
    ['scopes', { ...own, scopes: ['volumes:read'] }],
    ['cidrs', { ...own, cidrs: [] }],
    ['cidrs', { ...own, cidrs: ['10.0.0.0/7'] }],
    ['cidrs', { ...own, cidrs: ['127.0.0.1', '192.168.0.0/16'] }],
    ['cidrs', { ...own, cidrs: ['::/0'] }],
    ['expires_at', { ...own, expires_at: null }],
    ['expires_at', { ...own, expires_at: '2999-01-01T00:00:01Z' }],
  ] as const) {
    const answer = await maker.post('/v1/keys', { name: 'x', ...body });
    expectError(answer, 403, 'key_exceeds_caller');
    expect([body, answer.body.error.details.field]).toEqual([body, field]);
  }
  await make({ ...own, scopes: ['sandboxes:read'], cidrs: ['10.1.0.0/16'], labels: { a: 'b' } }, maker);
});

test('a key cannot rotate a key with more access than its own, but can revoke it', async () => {
  const maker = await make({ scopes: ['keys:write'] });
  const admin = await make({});
  expectError(await maker.post(`/v1/keys/${admin.keyId}/rotate`, {}), 403, 'key_exceeds_caller');
  expect(await works(admin)).toBe(true);
  expect((await maker.delete(`/v1/keys/${admin.keyId}`)).status).toBe(200);
  expect(await works(admin)).toBe(false);
});

test('during the overlap of a rotation both secrets work, and older secrets end with the last overlap', async () => {
  const first = await make({});
  const path = `/v1/keys/${first.keyId}/rotate`;
  const { body: second } = await client.post(path, { overlap_secs: 600 });
  expect(second).toMatchObject({ id: first.keyId, prefix: second.key.slice(0, 12), name: 'made' });
  expect([await works(first), await works(second)]).toEqual([true, true]);
  const { body: third } = await client.post(path, { overlap_secs: 60 });
  expect([await works(first), await works(second), await works(third)]).toEqual([true, true, true]);
  const { body: shown } = await client.get(`/v1/keys/${first.keyId}`);
  expect(shown.previous_secret_until).toBe(third.previous_secret_until);
  expect(Date.parse(shown.previous_secret_until) - Date.parse(shown.rotated_at)).toBe(60_000);
  ahead += 60_000;
  expect((await client.get(`/v1/keys/${first.keyId}`)).body.previous_secret_until).toBeNull();
  expect([await works(first), await works(second), await works(third)]).toEqual([false, false, true]);
  const { body: fourth } = await client.post(path, { overlap_secs: 0 });
  expect([await works(third), await works(fourth)]).toEqual([false, true]);
  const { body: events } = await client.get('/v1/events', {
    event_type: 'api_key_rotated',
    resource_id: first.keyId,
  });
  expect(events.data.map(({ payload }: any) => [payload.previous_prefix, payload.prefix])).toEqual([
    [third.prefix, fourth.prefix],
    [second.prefix, third.prefix],
    [first.key.slice(0, 12), second.prefix],
  ]);
  const { body: fifth } = await client.post(path, {});
  await client.delete(`/v1/keys/${first.keyId}`);
  expect([await works(fourth), await works(fifth)]).toEqual([false, false]);
  expectError(await client.post(path, {}), 409, 'invalid_state_transition');
});

test('a replaced secret cannot create keys or rotate the key', async () => {
  const stolen = await make({});
  const { body: owner } = await client.post(`/v1/keys/${stolen.keyId}/rotate`, { overlap_secs: 600 });
  expectError(
    await stolen.post('/v1/keys', { name: 'x', scopes: ['events:read'] }),
    403,
    'key_exceeds_caller',
  );
  for (const id of [stolen.keyId, client.keyId]) {
    expectError(await stolen.post(`/v1/keys/${id}/rotate`, { overlap_secs: 0 }), 403, 'key_exceeds_caller');
  }
  expect([await works(stolen), await works(owner)]).toEqual([true, true]);
  const { body: made } = await client.request('POST', '/v1/keys', {
    key: owner.key,
    body: { name: 'x', scopes: ['events:read'] },
  });
  expect(made.key).toMatch(/^skp_/);
});

test('under an idempotency key a key is created once, and its secret is stored nowhere', async () => {
  const headers = { 'idempotency-key': uuidv7() };
  const body = { name: 'once', scopes: ['org:admin'] };
  const first = await client.request('POST', '/v1/keys', { headers, body });
  const again = await client.request('POST', '/v1/keys', { headers, body });
  expect(again.headers.get('idempotency-replayed')).toBe('true');
  expect(again.body).toEqual({ ...first.body, key: null });
  // The form in which the previous release stores it.
  await service.ctx.pool.query("update idempotency_keys set answer = (answer::jsonb - 'key')::json");
  expect((await client.request('POST', '/v1/keys', { headers, body })).body).toEqual(again.body);
  const rotation = { headers: { 'idempotency-key': uuidv7() }, body: {} };
  const path = `/v1/keys/${first.body.id}`;
  const rotate = await client.request('POST', `${path}/rotate`, rotation);
  const rotatedAgain = await client.request('POST', `${path}/rotate`, rotation);
  expect(rotatedAgain.body).toEqual({ ...rotate.body, key: null });
  const revocation = { headers: { 'idempotency-key': uuidv7() } };
  const revoked = await client.request('DELETE', path, revocation);
  expect((await client.request('DELETE', path, revocation)).body).toEqual(revoked.body);
  const { body: events } = await client.get('/v1/events', { resource_id: first.body.id });
  expect(events.data.map(({ event_type }: any) => event_type)).toEqual([
    'api_key_revoked',
    'api_key_rotated',
    'api_key_created',
  ]);
  const { rows } = await service.ctx.pool.query<{ text: string }>(
    `select k::text as text from idempotency_keys k union all select e::text from events e
     union all select k::text from api_keys k union all select r::text from api_key_replaced_secrets r`,
  );
  const stored = rows.map(({ text }) => text).join('\n');
  expect(stored).toContain('once');
  for (const key of [first.body.key, rotate.body.key]) {
    for (const form of [key.slice(12, 36), Buffer.from(key.slice(12, 36)).toString('hex')]) {
      expect(stored).not.toContain(form);
    }
  }
});

test('a key that rotates itself twice under one idempotency key gets no secret, and its new secret works', async () => {
  const mine = await service.newOrg();
  const rotation = { headers: { 'idempotency-key': uuidv7() }, body: {} };
  const path = `/v1/keys/${mine.keyId}/rotate`;
  const { body: rotated } = await mine.request('POST', path, rotation);
  const again = await mine.request('POST', path, rotation);
  expect([again.status, again.body]).toEqual([200, { ...rotated, key: null }]);
  expect(await works(rotated)).toBe(true);
});

test('a key of another organization is not found, like an unknown key', async () => {
  const other = await service.newOrg();
  for (const id of [other.keyId, uuidv7()]) {
    expectError(await client.get(`/v1/keys/${id}`), 404, 'key_not_found');
    expectError(await client.delete(`/v1/keys/${id}`), 404, 'key_not_found');
    expectError(await client.post(`/v1/keys/${id}/rotate`, {}), 404, 'key_not_found');
  }
  expect(await works(other)).toBe(true);
});
