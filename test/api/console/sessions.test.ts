import { request as httpRequest } from 'node:http';
import { beforeEach, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { deleteExpiredSessions } from '../../../src/console/jobs.js';
import { createKey } from '../../../src/keys/create.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { sessionAt, signIn, type ConsoleSession } from '../../support/console.js';
import { statusOf } from '../../support/members.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest } from '../../support/service.js';
import { useTwoServices } from '../../support/two-services.js';

const its = useTwoServices();
let keyId: string;
let key: string;
let here: ConsoleSession;
let there: ConsoleSession;

beforeEach(async () => {
  ({ id: keyId, key } = await createKey(
    its.first.ctx.pool,
    its.client.org.id,
    'signed in',
    operator('test'),
  ));
  here = await signIn(its.first, key);
  there = sessionAt(its.second.url, here);
  expect([await statusOf(here), await statusOf(there)]).toEqual([200, 200]);
});

/** When the last request that was still accepted was sent after `end`, in milliseconds. */
async function lastAccepted(session: ConsoleSession, end: number): Promise<number> {
  let last = 0;
  await until(
    async () => {
      const asked = performance.now() - end;
      const status = await statusOf(session);
      if (status === 200) last = asked;
      return status;
    },
    (status) => status === 401,
  );
  return last;
}

/** Ends the session, and expects each process to refuse it within a its.second. */
async function expectEnd(end: () => Promise<unknown>): Promise<void> {
  await end();
  const ended = performance.now();
  for (const late of await Promise.all([lastAccepted(here, ended), lastAccepted(there, ended)])) {
    expect(late).toBeLessThan(1_000);
  }
  const answer = await there.fetch('/v1/me/org');
  expect(await answer.json()).toMatchObject({ error: { code: 'invalid_session' } });
  expect(answer.headers.get('www-authenticate')).toBe('Bearer');
}

describe('a session ends in every process within a second of', () => {
  test('the sign-out', async () => {
    await expectEnd(async () => {
      const answer = await there.fetch('/console/session', { method: 'DELETE' });
      expect(answer.status).toBe(204);
      expect(answer.headers.getSetCookie()).toEqual([
        'sandkeep_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0',
        '__Host-sandkeep_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure',
      ]);
      expect(await statusOf(there)).toBe(401);
    });
  });

  test('the revocation of its key', async () => {
    await expectEnd(() => its.client.delete(`/v1/keys/${keyId}`));
  });

  test('the revocation by the operator', async () => {
    await expectEnd(() => revokeKey(its.first.ctx.pool, keyId, operator('test')));
  });

  test('a rotation without overlap', async () => {
    await expectEnd(() => its.client.post(`/v1/keys/${keyId}/rotate`, { overlap_secs: 0 }));
  });

  test('the end of the overlap', async () => {
    await its.client.post(`/v1/keys/${keyId}/rotate`, { overlap_secs: 3600 });
    expect([await statusOf(here), await statusOf(there)]).toEqual([200, 200]);
    await expectEnd(() =>
      its.first.ctx.pool.query('update api_key_replaced_secrets set until = now() where key_id = $1', [
        keyId,
      ]),
    );
  });

  test('the expiry of its key', async () => {
    await expectEnd(() =>
      its.first.ctx.pool.query(
        'update api_keys set expires_at = now(), expiry_recorded = true where id = $1',
        [keyId],
      ),
    );
  });

  test('its own expiry', async () => {
    await expectEnd(() =>
      its.first.ctx.pool.query('update console_sessions set expires_at = now() where key_id = $1', [keyId]),
    );
  });

  test('a change of the networks of its key', async () => {
    await its.first.ctx.pool.query(`update api_keys set cidrs = '{192.0.2.0/24}' where id = $1`, [keyId]);
    expect(
      await until(
        () => statusOf(there),
        (status) => status === 403,
      ),
    ).toBe(403);
  });
});

test('a stream ends with the session, in another process too', async () => {
  const leave = new AbortController();
  const open = async (session: ConsoleSession) => {
    const answer = await session.fetch('/v1/events/stream', { signal: leave.signal });
    expect(answer.status).toBe(200);
    return { ended: answer.text().catch(() => 'cut off') };
  };
  const streams = [await open(here), await open(there)];
  await here.fetch('/console/session', { method: 'DELETE' });
  const ended = performance.now();
  await Promise.all(streams.map((stream) => stream.ended));
  // A second, and the slack of a machine on which other tests run.
  expect(performance.now() - ended).toBeLessThan(20_000);
  leave.abort();
});

test('the sign-out ends one session of the key, and a replayed cookie stays refused', async () => {
  const other = await signIn(its.first, key);
  await here.fetch('/console/session', { method: 'DELETE' });
  expect([await statusOf(here), await statusOf(other)]).toEqual([401, 200]);
  const again = await here.fetch('/console/session', { method: 'DELETE' });
  expect(again.status).toBe(401);
});

test('the session can be read again, without a new cookie', async () => {
  const answer = await there.fetch('/console/session');
  expect(await answer.json()).toMatchObject({
    csrf_token: here.csrf,
    expires_at: here.expiresAt,
    organization: its.client.org,
    key: { id: keyId },
  });
  expect(answer.headers.getSetCookie()).toEqual([]);
  const byKey = await fetch(`${its.first.url}/console/session`, {
    headers: { authorization: `Bearer ${key}` },
  });
  expect(byKey.status).toBe(401);
  expect((await fetch(`${its.first.url}/console/session`)).status).toBe(401);
});

test('a key in the header counts instead of the cookie', async () => {
  const bad = await here.fetch('/v1/me/org', { headers: { authorization: 'Bearer skp_bad' } });
  expect(await bad.json()).toMatchObject({ error: { code: 'invalid_api_key' } });
  const other = await its.first.newOrg();
  const good = await here.fetch('/v1/me/org', { headers: { authorization: `Bearer ${other.key}` } });
  expect(await good.json()).toMatchObject({ id: other.org.id });
});

test.each([
  ['none', ''],
  ['another cookie', 'theme=dark'],
  ['an empty one', 'sandkeep_session='],
  ['one of another form', 'sandkeep_session=skp_x'],
])('%s opens nothing', async (_, cookie) => {
  const { status } = await fetch(`${its.first.url}/v1/me/org`, { headers: { cookie } });
  expect(status).toBe(401);
});

test('a request with two session cookies is refused', async () => {
  const { status } = await fetch(`${its.first.url}/v1/me/org`, {
    headers: { cookie: `${here.cookie}; theme=dark; ${here.cookie}` },
  });
  expect(status).toBe(401);
});

test('over HTTPS a cookie without the prefix does not count', async () => {
  const headers = { origin: `https://${new URL(its.first.url).host}` };
  expect((await here.fetch('/v1/me/org', { headers })).status).toBe(401);
});

test('labels of the key narrow the session', async () => {
  const { body: sandbox } = await its.client.post('/v1/sandboxes', smallRequest('unlabelled'));
  const narrow = await createKey(its.first.ctx.pool, its.client.org.id, 'narrow', operator('test'), {
    ...FULL_ACCESS,
    scopes: ['sandboxes:read'],
    labels: { team: 'web' },
  });
  const session = await signIn(its.first, narrow.key);
  expect((await session.fetch(`/v1/sandboxes/${sandbox.id}`)).status).toBe(404);
  const listed = (await (await session.fetch('/v1/sandboxes')).json()) as { data: unknown[] };
  expect(listed.data).toEqual([]);
});

test('no cookie opens a WebSocket', async () => {
  const status = await new Promise((resolve, reject) => {
    const request = httpRequest(its.first.url, {
      path: `/v1/sandboxes/${keyId}/agent`,
      headers: {
        cookie: here.cookie,
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      },
    });
    request.on('response', ({ statusCode }) => resolve(statusCode));
    request.on('upgrade', (_, socket) => resolve(socket.destroy() && 101));
    request.on('error', reject).end();
  });
  expect(status).toBe(401);
});

test('a request by cookie costs no query more than one by key', async () => {
  const service = await startForTest({ worker: false });
  const { key: own } = await service.newOrg();
  const session = await signIn(service, own);
  const queries: string[] = [];
  const { pool } = service.ctx;
  const query = pool.query.bind(pool);
  pool.query = ((...args: Parameters<typeof query>) => {
    queries.push(args[0]);
    return query(...args);
  }) as typeof pool.query;
  const lookups = () => queries.filter((text) => text.includes('console_sessions')).length;
  for (let n = 0; n < 50; n += 1) await statusOf(session);
  expect(lookups()).toBeLessThanOrEqual(1 + Math.ceil(50 / 2));
});

test('rows of expired sessions are deleted', async () => {
  const at = addMillis(now(), -1_000);
  await its.first.ctx.pool.query('update console_sessions set expires_at = $2 where key_id = $1', [
    keyId,
    at,
  ]);
  await deleteExpiredSessions(its.first.ctx);
  const { rows } = await its.first.ctx.pool.query('select from console_sessions where key_id = $1', [keyId]);
  expect(rows).toEqual([]);
});
