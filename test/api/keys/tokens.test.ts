import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { commonScopes } from '../../../src/access/personal-token.js';
import { covers, SCOPES, type Scope } from '../../../src/access/scopes.js';
import { operator } from '../../../src/audit/events/actor.js';
import { recordEndedKeys } from '../../../src/keys/jobs.js';
import { MOST_TOKENS } from '../../../src/keys/tokens/create.js';
import { changeMember } from '../../../src/members/change.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import { unlinkMember } from '../../../src/members/unlink.js';
import { newId } from '../../../src/lib/uuid.js';
import { makeClient, type Client } from '../../support/client.js';
import type { ConsoleSession } from '../../support/console.js';
import { byOperator, newMember, newToken, send, signInMember, statusOrCut } from '../../support/members.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
let member: MemberRow;
let session: ConsoleSession;

beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
  member = await newMember(service, client.org.id, 'developer');
  session = await signInMember(service, client.org.id, member);
});

const clientOf = ({ id, secret }: { id: string; secret: string }) =>
  makeClient(service.url, { org: client.org, key: secret, keyId: id });

/** Waits until a token has another answer to a read. */
async function becomes(by: Client, path: string, wanted: number): Promise<void> {
  await until(
    async () => statusOrCut(by.get(path)),
    (status) => status === wanted,
  );
}

describe('a personal token', () => {
  test('acts as its member, is listed without its secret, and is stored as a hash', async () => {
    const made = await send(session, 'POST', '/v1/tokens', { name: 'laptop', expires_in_days: 7 });
    expect(made.status).toBe(200);
    const { token, ...shown } = made.body;
    expect(token).toMatch(/^msb_pat_[0-9A-Za-z]{38}$/);
    expect(shown).toEqual({
      id: expect.any(String),
      name: 'laptop',
      prefix: token.slice(0, 16),
      scopes: ['sandboxes:write', 'sandboxes:exec', 'volumes:write'],
      member_id: member.id,
      email: member.email,
      created_at: expect.any(String),
      expires_at: expect.any(String),
      last_used_at: null,
    });
    expect(Date.parse(shown.expires_at) - Date.parse(shown.created_at)).toBe(7 * 24 * 3_600_000);
    const by = clientOf({ id: shown.id, secret: token });
    const sandbox = await by.post('/v1/sandboxes', smallRequest('by-token'));
    expect(sandbox.status).toBe(200);
    const { body, text } = await client.get('/v1/events', { actor_id: member.user_id, limit: 100 });
    expect(body.data.map(({ event_type }: any) => event_type)).toContain('sandbox_created');
    const created = body.data.find(({ event_type }: any) => event_type === 'api_key_created');
    expect(created.payload).toMatchObject({ api_key_id: shown.id, name: 'laptop', member_id: member.id });
    expect(text).not.toContain(token.slice(16));
    expect((await by.get('/v1/me/org')).body).toMatchObject({ id: client.org.id, role: 'developer' });
    const list = await send(session, 'GET', '/v1/tokens');
    expect(list.body.data).toMatchObject([{ id: shown.id, prefix: shown.prefix }]);
    expect(list.text).not.toContain(token.slice(16));
    const { rows } = await service.ctx.pool.query<{ text: string }>(
      'select k::text as text from api_keys k where id = $1',
      [shown.id],
    );
    expect(rows[0]!.text).not.toContain(token.slice(16));
    expect(service.logs.join('\n')).not.toContain(token.slice(16));
  });

  test('opens no more than its member may now, also after a rise', async () => {
    const token = await newToken(service, client.org.id, member);
    const by = clientOf(token);
    const change = (access: Parameters<typeof changeMember>[3]) =>
      changeMember(service.ctx.pool, client.org.id, member, access, byOperator());
    await client.post('/v1/sandboxes', { ...smallRequest('other'), labels: { team: 'other' } });
    await becomes(by, '/v1/volumes', 200);
    await change({ labels: { team: 'ml' } });
    await becomes(by, '/v1/volumes', 403);
    expect((await by.get('/v1/sandboxes')).body.data).toEqual([]);
    await change({ role: 'finance', labels: {} });
    await becomes(by, '/v1/sandboxes', 403);
    expect((await by.get('/v1/billing/usage')).status).toBe(403);
    await change({ role: 'viewer' });
    await becomes(by, '/v1/sandboxes', 200);
    expect((await by.post('/v1/sandboxes', smallRequest('refused'))).status).toBe(403);
    await change({ role: 'owner' });
    await until(
      async () => statusOrCut(by.post('/v1/sandboxes', smallRequest(newId()))),
      (status) => status === 200,
    );
    for (const path of ['/v1/events', '/v1/keys', '/v1/members']) {
      expect([path, (await by.get(path)).status]).toEqual([path, 403]);
    }
  });

  test('makes no key that outlives it, and changes no owner', async () => {
    const admin = await newMember(service, client.org.id, 'owner');
    const owner = await newMember(service, client.org.id, 'owner');
    const by = clientOf(await newToken(service, client.org.id, admin));
    const asked = { name: 'by token', scopes: ['sandboxes:read'] };
    const endless = await by.post('/v1/keys', asked);
    expect([endless.status, endless.body.error.code]).toEqual([403, 'key_exceeds_caller']);
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    expect((await by.post('/v1/keys', { ...asked, expires_at })).status).toBe(200);
    const refused = await by.patch(`/v1/members/${owner.id}`, { role: 'viewer' });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'owner_required']);
    const another = await by.post('/v1/tokens', { name: 'another' });
    expect([another.status, another.body.error.code]).toEqual([403, 'member_required']);
  });

  test.each<[string, () => Promise<unknown>]>([
    ['its member is removed', () => removeMember(service.ctx.pool, client.org.id, member, byOperator())],
    ['it is revoked', async () => send(session, 'DELETE', `/v1/tokens/${(await own())[0].id}`)],
    [
      'it expires',
      () =>
        service.ctx.pool.query('update api_keys set expires_at = now() where member_id = $1', [member.id]),
    ],
    [
      'the account of its member is unlinked',
      async () => {
        const person = newId();
        const { pool } = service.ctx;
        await pool.query(
          `insert into people (id, issuer, subject, created_at, signed_in_at)
           values ($1, 'https://login.example.com', 'subject', now(), now())`,
          [person],
        );
        await pool.query('update org_members set person_id = $2 where id = $1', [member.id, person]);
        await unlinkMember(pool, client.org.id, member.email, operator('test'));
      },
    ],
  ])('is refused when %s', async (_, end) => {
    const by = clientOf(await newToken(service, client.org.id, member));
    expect((await by.get('/v1/me/org')).status).toBe(200);
    await end();
    await becomes(by, '/v1/me/org', 401);
    expect((await client.get('/v1/tokens')).body.data).toEqual([]);
  });

  async function own() {
    return (await send(session, 'GET', '/v1/tokens')).body.data;
  }

  test('revokes itself, with its event', async () => {
    const token = await newToken(service, client.org.id, member);
    const by = clientOf(token);
    expect((await by.delete(`/v1/tokens/${token.id}`)).body).toEqual({
      message: 'the personal token "test token" is revoked',
    });
    expect((await by.get('/v1/me/org')).status).toBe(401);
    const { body } = await client.get('/v1/events', { event_type: 'api_key_revoked' });
    expect(body.data).toMatchObject([
      { actor: { kind: 'user' }, payload: { api_key_id: token.id, member_id: member.id } },
    ]);
  });

  test('is seen and revoked by its member and by administrators alone, and is no key of the organization', async () => {
    const token = await newToken(service, client.org.id, member);
    const path = `/v1/tokens/${token.id}`;
    const other = await signInMember(
      service,
      client.org.id,
      await newMember(service, client.org.id, 'developer'),
    );
    const foreign = await service.newOrg();
    const { body: reader } = await client.post('/v1/keys', { name: 'reader', scopes: ['keys:read'] });
    const byReader = makeClient(service.url, { org: client.org, key: reader.key, keyId: reader.id });
    expect((await send(other, 'GET', '/v1/tokens')).body.data).toEqual([]);
    for (const by of [foreign, byReader]) {
      expect((await by.get('/v1/tokens')).body.data).toEqual([]);
      expect((await by.delete(path)).body.error.code).toBe('token_not_found');
    }
    expect((await send(other, 'DELETE', path)).body.error.code).toBe('token_not_found');
    for (const method of ['GET', 'DELETE'] as const) {
      expect((await client.request(method, `/v1/keys/${token.id}`)).body.error.code).toBe('key_not_found');
    }
    expect((await client.post(`/v1/keys/${token.id}/rotate`, {})).status).toBe(404);
    expect((await client.get('/v1/keys')).text).not.toContain(token.id);
    expect((await client.get('/v1/tokens')).body.data).toMatchObject([
      { id: token.id, member_id: member.id, email: member.email },
    ]);
    expect((await client.delete(path)).status).toBe(200);
    await becomes(clientOf(token), '/v1/me/org', 401);
  });

  test('is one of a bounded number, also when many are made at once', async () => {
    for (let count = 2; count < MOST_TOKENS; count += 1) await newToken(service, client.org.id, member);
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => send(session, 'POST', '/v1/tokens', { name: 'one more' })),
    );
    const codes = answers.map(({ body }) => body.error?.code ?? 'made');
    expect(codes.toSorted((a, b) => (a < b ? -1 : 1))).toEqual([
      ...Array.from({ length: 2 }, () => 'made'),
      ...Array.from({ length: 4 }, () => 'quota_exceeded'),
    ]);
  });

  test('has its expiry in the audit trail', async () => {
    const { id } = await newToken(service, client.org.id, member);
    await service.ctx.pool.query('update api_keys set expires_at = now() where id = $1', [id]);
    await recordEndedKeys(service.ctx, new AbortController().signal);
    // The job of the service may have claimed the token, and not have committed its event yet.
    const { body } = await until(
      () => client.get('/v1/events', { event_type: 'api_key_expired' }),
      ({ body: { data } }) => data.length > 0,
    );
    expect(body.data).toMatchObject([{ payload: { api_key_id: id } }]);
  });
});

test.each([
  [{ name: ' ' }, 400, 'invalid_request'],
  [{ name: 'x'.repeat(201) }, 400, 'invalid_request'],
  [{ name: 'a\0' }, 400, 'invalid_request'],
  [{ name: 'a', scopes: [] }, 400, 'invalid_request'],
  [{ name: 'a', scopes: ['everything'] }, 400, 'invalid_request'],
  [{ name: 'a', scopes: ['sandboxes:read', 'billing:read'] }, 403, 'insufficient_scope'],
  [{ name: 'a', expires_in_days: 0 }, 400, 'invalid_request'],
  [{ name: 'a', expires_in_days: 367 }, 400, 'invalid_request'],
])('a request for a token with %j is answered %d %s', async (asked, status, code) => {
  const { body, status: found } = await send(session, 'POST', '/v1/tokens', asked);
  expect([found, body.error.code]).toEqual([status, code]);
  expect((await client.get('/v1/tokens')).body.data).toEqual([]);
});

test('an administrator who loses the role before the end of a write by a token makes no key', async () => {
  const { pool } = service.ctx;
  const admin = await newMember(service, client.org.id, 'admin');
  const by = clientOf(await newToken(service, client.org.id, admin));
  const holder = await pool.connect();
  await holder.query('begin');
  await holder.query(`update org_members set role = 'viewer' where id = $1`, [admin.id]);
  const expires_at = new Date(Date.now() + 3_600_000).toISOString();
  const made = by.post('/v1/keys', { name: 'late', scopes: ['sandboxes:read'], expires_at });
  await until(
    () =>
      pool.query('select from pg_stat_activity where wait_event_type = $1 and datname = current_database()', [
        'Lock',
      ]),
    ({ rowCount }) => rowCount! > 0,
  );
  await holder.query('commit');
  holder.release();
  expect([403, 'cut']).toContain(await statusOrCut(made));
  expect((await client.get('/v1/keys')).text).not.toContain('late');
});

test('the common scopes of two sets cover what both cover, and nothing else', () => {
  const sets = SCOPES.flatMap((one) => SCOPES.map((two): Scope[] => [...new Set([one, two])]));
  const wrong = sets.flatMap((some) =>
    sets.flatMap((others) => {
      const common = commonScopes(some, others);
      return SCOPES.filter(
        (scope) => covers(common, scope) !== (covers(some, scope) && covers(others, scope)),
      ).map((scope) => [some, others, scope]);
    }),
  );
  expect(sets.length).toBe(100);
  expect(wrong).toEqual([]);
});
