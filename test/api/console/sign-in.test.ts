import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { hashOf, makeKey } from '../../../src/access/key-secret.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { addMillis, now, shortInstant } from '../../../src/lib/instant.js';
import type { Client } from '../../support/client.js';
import { postKey, signIn } from '../../support/console.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;

beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

async function keyWith(access: Partial<Access>): Promise<{ id: string; key: string }> {
  return createKey(service.ctx.pool, client.org.id, 'tried', operator('test'), { ...FULL_ACCESS, ...access });
}

async function codeOf(answer: Response): Promise<[number, string]> {
  const { error } = (await answer.json()) as { error: { code: string } };
  return [answer.status, error.code];
}

describe('a sign-in', () => {
  test('gives a session in a cookie that scripts cannot read', async () => {
    const answer = await postKey(service.url, client.key);
    expect(answer.status).toBe(201);
    expect(await answer.json()).toEqual({
      csrf_token: expect.stringMatching(/^[\w-]{43}$/),
      expires_at: expect.any(String),
      organization: client.org,
      organizations: [client.org],
      scopes: ['org:admin'],
      labels: {},
      key: { id: client.keyId, name: 'test key', prefix: client.key.slice(0, 12), expires_at: null },
      member: null,
    });
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(
        /^sandkeep_session=sks_[0-9A-Za-z]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/,
      ),
    ]);
    expect(answer.headers.get('cache-control')).toBe('no-store');
  });

  test('from a page over HTTPS gives a cookie that browsers send only there', async () => {
    const origin = `https://${new URL(service.url).host}`;
    const [cookie] = (await postKey(service.url, client.key, { origin })).headers.getSetCookie();
    expect(cookie).toMatch(/^__Host-sandkeep_session=sks_.*; Path=\/; HttpOnly; SameSite=Strict;.*; Secure$/);
    const [pair] = cookie!.split(';');
    const { status } = await fetch(`${service.url}/console/session`, { headers: { cookie: pair! } });
    expect(status).toBe(200);
  });

  test('stores neither the key nor the token', async () => {
    const { cookie } = await signIn(service, client.key);
    const token = cookie.split('=')[1]!;
    const { rows } = await service.ctx.pool.query<{ text: string }>(
      'select s::text as text from console_sessions s',
    );
    const all = rows.map(({ text }) => text).join('\n');
    expect(all).toContain(hashOf(token).toString('hex'));
    for (const secret of [token, client.key, client.key.slice(12)]) expect(all).not.toContain(secret);
    expect(service.logs.join('\n')).not.toContain(token);
    expect(service.logs.join('\n')).not.toContain(client.key);
  });

  test('is refused for a key that opens nothing', async () => {
    const [revoked, expired] = [await keyWith({}), await keyWith({})];
    await revokeKey(service.ctx.pool, revoked.id, operator('test'));
    await service.ctx.pool.query(
      'update api_keys set expires_at = now(), expiry_recorded = true where id = $1',
      [expired.id],
    );
    for (const key of ['', 'x', makeKey(), `${client.key}A`, revoked.key, expired.key]) {
      const answer = await postKey(service.url, key);
      expect(answer.headers.getSetCookie()).toEqual([]);
      expect(await codeOf(answer)).toEqual([401, 'invalid_api_key']);
    }
  });

  test('is refused from a network that the key does not allow', async () => {
    const { key } = await keyWith({ cidrs: ['192.0.2.0/24'] });
    expect(await codeOf(await postKey(service.url, key))).toEqual([403, 'address_not_allowed']);
    const local = await keyWith({ cidrs: ['127.0.0.0/8'] });
    expect((await postKey(service.url, local.key)).status).toBe(201);
  });

  test('lasts at most as long as the key', async () => {
    const expiresAt = addMillis(now(), 3_600_000);
    const { key } = await keyWith({ expiresAt });
    const answer = await postKey(service.url, key);
    expect(await answer.json()).toMatchObject({ expires_at: shortInstant(expiresAt) });
    expect(Number(/Max-Age=(\d+)/.exec(answer.headers.getSetCookie()[0]!)![1])).toBeLessThanOrEqual(3_600);
  });

  test('takes only a small JSON body', async () => {
    const post = (headers: Record<string, string>, body: string) =>
      fetch(`${service.url}/console/session`, { method: 'POST', headers, body });
    const json = { 'content-type': 'application/json' };
    const body = JSON.stringify({ key: client.key });
    expect(await codeOf(await post({ 'content-type': 'text/plain' }, body))).toEqual([
      415,
      'unsupported_media_type',
    ]);
    expect(await codeOf(await post(json, '{'))).toEqual([400, 'invalid_json']);
    expect(await codeOf(await post(json, '{}'))).toEqual([400, 'invalid_request']);
    expect(await codeOf(await post(json, JSON.stringify({ key: 'x'.repeat(2_000) })))).toEqual([
      413,
      'payload_too_large',
    ]);
  });

  test('is refused to a page of another origin', async () => {
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
    ]) {
      expect(await codeOf(await postKey(service.url, client.key, headers))).toEqual([
        403,
        'origin_not_allowed',
      ]);
    }
    expect((await postKey(service.url, client.key, { origin: service.url })).status).toBe(201);
  });

  test('never adopts a session that the client names', async () => {
    const given = `sks_${'A'.repeat(43)}`;
    const answer = await postKey(service.url, client.key, { cookie: `sandkeep_session=${given}` });
    expect(answer.status).toBe(201);
    expect(answer.headers.getSetCookie()[0]).not.toContain(given);
    const { status } = await fetch(`${service.url}/console/session`, {
      headers: { cookie: `sandkeep_session=${given}` },
    });
    expect(status).toBe(401);
  });

  test('is in the audit trail, and the sign-out too', async () => {
    const other = await service.newOrg();
    const session = await signIn(service, other.key);
    expect((await session.fetch('/console/session', { method: 'DELETE' })).status).toBe(204);
    const { body } = await other.get('/v1/events', { category: 'api_key', limit: 100 });
    const events = (body.data as { event_type: string }[])
      .filter(({ event_type: type }) => type.startsWith('console'))
      .toReversed();
    const actor = { kind: 'api_key', api_key_id: other.keyId, name: 'test key' };
    const payload = { api_key_id: other.keyId, name: 'test key', prefix: other.key.slice(0, 12) };
    expect(events).toMatchObject([
      { event_type: 'console_session_opened', actor, payload },
      { event_type: 'console_session_ended', actor, payload: { ...payload, reason: 'signed_out' } },
    ]);
  });

  test('ends the oldest of a hundred sessions of the key', async () => {
    const { id, key } = await keyWith({});
    const first = await signIn(service, key);
    await service.ctx.pool.query(
      `insert into console_sessions select org_id, sha256(n::text::bytea), gen_random_uuid(), key_id, secret_prefix,
         created_at + n * interval '1 second', expires_at
       from console_sessions, generate_series(1, 99) as n where key_id = $1`,
      [id],
    );
    expect((await first.fetch('/console/session')).status).toBe(200);
    await signIn(service, key);
    await expect.poll(async () => (await first.fetch('/console/session')).status).toBe(401);
    const { rows } = await service.ctx.pool.query<{ count: number }>(
      'select count(*)::int as count from console_sessions where key_id = $1',
      [id],
    );
    expect(rows[0]!.count).toBe(100);
  });
});

test('guesses of keys are counted by address', async () => {
  const strict = await startForTest({ worker: false, settings: { failedAuthLimit: 3 } });
  const statuses: number[] = [];
  for (let n = 0; n < 5; n += 1) statuses.push((await postKey(strict.url, makeKey())).status);
  expect(statuses).toEqual([401, 401, 401, 429, 429]);
});

test('guesses of sessions are counted by address', async () => {
  const strict = await startForTest({ worker: false, settings: { failedAuthLimit: 3 } });
  const statuses: number[] = [];
  for (let n = 0; n < 5; n += 1) {
    const cookie = `sandkeep_session=sks_${String(n).repeat(43)}`;
    statuses.push((await fetch(`${strict.url}/v1/sandboxes`, { headers: { cookie } })).status);
  }
  expect(statuses).toEqual([401, 401, 401, 429, 429]);
});
