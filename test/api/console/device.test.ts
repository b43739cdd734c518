import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { deleteExpiredSessions } from '../../../src/console/jobs.js';
import { MOST_DEVICES } from '../../../src/console/device/routes.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import type { Client } from '../../support/client.js';
import { signIn, type ConsoleSession } from '../../support/console.js';
import { byOperator, newMember, signInMember } from '../../support/members.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

const GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

let service: TestService;
let client: Client;
let member: MemberRow;
let session: ConsoleSession;

beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());
beforeEach(async () => {
  await service.ctx.pool.query('delete from device_sign_ins');
  client = await service.newOrg();
  member = await newMember(service, client.org.id, 'developer');
  session = await signInMember(service, client.org.id, member);
});

async function post(path: string, form: Record<string, string> | string, url = service.url) {
  const body = typeof form === 'string' ? form : new URLSearchParams(form);
  const answer = await fetch(`${url}/console/device/${path}`, { method: 'POST', body });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: JSON.parse(text) };
}

const begin = async (client_name = 'sandkeep on laptop') =>
  (await post('authorization', { client_name })).body;
const poll = (device_code: string) => post('token', { grant_type: GRANT, device_code });

async function show(code: string, by = session) {
  const answer = await by.fetch(`/console/device/codes/${code}`);
  return { status: answer.status, body: JSON.parse(await answer.text()) };
}

async function answer(code: string, allow: boolean, by = session, headers: Record<string, string> = {}) {
  const { status } = await by.fetch(`/console/device/codes/${code}`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ allow }),
  });
  return status;
}

describe('the sign-in of a device', () => {
  test('gives a personal token of the member who confirms its code, once', async () => {
    const device = await begin();
    expect(device).toEqual({
      device_code: expect.stringMatching(/^skd_[0-9A-Za-z]{43}$/),
      user_code: expect.stringMatching(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/),
      verification_uri: `${service.url}/console/device`,
      verification_uri_complete: `${service.url}/console/device?code=${device.user_code}`,
      expires_in: 600,
      interval: 5,
    });
    expect((await poll(device.device_code)).body).toEqual({ error: 'authorization_pending' });
    expect((await poll(device.device_code)).body).toEqual({ error: 'slow_down' });
    const typed = device.user_code.toLowerCase().replace('-', ' ');
    expect((await show(encodeURIComponent(typed))).body).toEqual({
      user_code: device.user_code,
      client: 'sandkeep on laptop',
      network: '127.0.0.1',
      created_at: expect.any(String),
    });
    expect(await answer(device.user_code, true)).toBe(204);
    expect((await show(device.user_code)).status).toBe(404);
    const got = await poll(device.device_code);
    expect(got.status).toBe(200);
    expect(got.headers.get('cache-control')).toBe('no-store');
    expect(got.body).toEqual({
      access_token: expect.stringMatching(/^msb_pat_/),
      token_type: 'Bearer',
      expires_in: 30 * 24 * 3_600,
      scope: 'sandboxes:write sandboxes:exec volumes:write',
      token_id: expect.any(String),
      expires_at: expect.any(String),
    });
    const org = await client.request('GET', '/v1/me/org', { key: got.body.access_token });
    expect(org.body).toMatchObject({ id: client.org.id, role: 'developer' });
    expect((await poll(device.device_code)).body).toEqual({ error: 'expired_token' });
    const { body: events } = await client.get('/v1/events', { event_type: 'api_key_created' });
    expect(events.data[0]).toMatchObject({
      actor: { kind: 'user', user_id: member.user_id },
      payload: { api_key_id: got.body.token_id, name: 'sandkeep on laptop', member_id: member.id },
    });
    expect(service.logs.join('\n')).not.toContain(device.device_code);
  });

  test('gives one token to two polls at once', async () => {
    const device = await begin();
    await answer(device.user_code, true);
    const answers = await Promise.all([poll(device.device_code), poll(device.device_code)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 400]);
  });

  test('ends when the member refuses it', async () => {
    const device = await begin();
    expect(await answer(device.user_code, false)).toBe(204);
    expect(await answer(device.user_code, true)).toBe(404);
    expect((await poll(device.device_code)).body).toEqual({ error: 'access_denied' });
    expect((await client.get('/v1/tokens')).body.data).toEqual([]);
  });

  test('gives nothing when the member is removed before the poll', async () => {
    const device = await begin();
    await answer(device.user_code, true);
    await removeMember(service.ctx.pool, client.org.id, member, byOperator());
    expect((await poll(device.device_code)).body).toEqual({ error: 'expired_token' });
  });

  test('expires, and is deleted', async () => {
    const device = await begin();
    await service.ctx.pool.query('update device_sign_ins set expires_at = now()');
    expect((await show(device.user_code)).status).toBe(404);
    expect(await answer(device.user_code, true)).toBe(404);
    expect((await poll(device.device_code)).body).toEqual({ error: 'expired_token' });
    await deleteExpiredSessions(service.ctx);
    expect((await service.ctx.pool.query('select from device_sign_ins')).rowCount).toBe(0);
  });

  test('is confirmed by members alone, in a session of the console with its CSRF token', async () => {
    const device = await begin();
    const byKey = await signIn(service, client.key);
    expect((await show(device.user_code, byKey)).body.error.code).toBe('member_required');
    expect(await answer(device.user_code, true, byKey)).toBe(403);
    expect(await answer(device.user_code, true, session, { 'x-csrf-token': 'x' })).toBe(403);
    expect(await answer(device.user_code, true, session, { origin: 'https://evil.example' })).toBe(403);
    const open = await fetch(`${service.url}/console/device/codes/${device.user_code}`);
    expect(open.status).toBe(401);
    expect((await poll(device.device_code)).body).toEqual({ error: 'authorization_pending' });
  });

  test('stores hashes of its codes, and no more than a bounded number', async () => {
    const device = await begin();
    const { rows } = await service.ctx.pool.query<{ text: string }>(
      'select d::text as text from device_sign_ins d',
    );
    expect(rows[0]!.text).not.toContain(device.device_code);
    await service.ctx.pool.query(
      `insert into device_sign_ins (hash, user_code, client, network, created_at, expires_at)
       select sha256(n::text::bytea), n::text, 'x', '127.0.0.1', now(), now() + interval '1 minute'
       from generate_series(1, $1::int) as n`,
      [MOST_DEVICES.each - 1],
    );
    const refused = await post('authorization', { client_name: 'one more' });
    expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
    await service.ctx.pool.query(`update device_sign_ins set network = 'elsewhere'`);
    expect((await post('authorization', { client_name: 'one more' })).status).toBe(200);
  });
});

test.each([
  ['authorization', { client_name: ' ' }, 'invalid_request'],
  ['authorization', { client_name: 'x'.repeat(201) }, 'invalid_request'],
  ['authorization', { client_name: 'a\0' }, 'invalid_request'],
  ['authorization', { client_name: 'a\nb' }, 'invalid_request'],
  ['authorization', { client_name: 'a\u202eb' }, 'invalid_request'],
  ['authorization', {}, 'invalid_request'],
  ['token', { grant_type: 'password' }, 'unsupported_grant_type'],
  ['token', { grant_type: GRANT }, 'expired_token'],
  ['token', { grant_type: GRANT, device_code: `skd_${'A'.repeat(43)}` }, 'expired_token'],
])('%s with %j is answered %s', async (path, form, error) => {
  const { status, body } = await post(path, form);
  expect([status, body]).toEqual([400, { error }]);
});

test('guesses of codes are counted by address', async () => {
  const strict = await startForTest({ worker: false, beside: service, settings: { failedAuthLimit: 3 } });
  const own = await signInMember(strict, client.org.id, member);
  const statuses: number[] = [];
  for (let count = 0; count < 4; count += 1) statuses.push((await show('BCDF-BCDF', own)).status);
  expect(statuses).toEqual([404, 404, 404, 429]);
});
