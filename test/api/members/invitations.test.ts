import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hashOf } from '../../../src/access/key-secret.js';
import type { Role } from '../../../src/access/roles.js';
import type { Pool } from '../../../src/db/pool.js';
import { MOST_INVITATIONS } from '../../../src/members/invite.js';
import { deleteExpiredLinks } from '../../../src/members/jobs.js';
import type { MemberRow } from '../../../src/members/queries.js';
import type { Client } from '../../support/client.js';
import type { ConsoleSession } from '../../support/console.js';
import { newMember, postLink, send, signInMember, statusOf, statusOrCut } from '../../support/members.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
let owner: MemberRow;
let byOwner: ConsoleSession;
let byAdmin: ConsoleSession;

beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
  owner = await newMember(service, client.org.id, 'owner');
  byOwner = await signInMember(service, client.org.id, owner);
  byAdmin = await signInMember(service, client.org.id, await newMember(service, client.org.id, 'admin'));
});

const tokenOf = (link: string) => new URL(link).hash.slice(1);

describe('an invitation', () => {
  test('makes one person a member, who is signed in', async () => {
    const labels = { team: 'ml' };
    const asked = { email: 'Grace.Hopper@example.com', role: 'developer', labels };
    const made = await send(byAdmin, 'POST', '/v1/invitations', asked);
    expect(made.status).toBe(200);
    expect(made.body).toMatchObject({ ...asked, created_by: { kind: 'user' } });
    expect(made.body.link).toMatch(new RegExp(`^${service.url}/console/sign-in#ski_[0-9A-Za-z]{43}$`));
    const { link, ...shown } = made.body;
    expect((await client.get('/v1/invitations')).body).toEqual({
      data: [shown],
      has_more: false,
      next_cursor: null,
    });
    const answers = await Promise.all([
      postLink(service.url, tokenOf(link)),
      postLink(service.url, tokenOf(link)),
    ]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 401]);
    const session: any = await answers.find(({ status }) => status === 201)!.json();
    expect(session).toMatchObject({
      organization: client.org,
      scopes: ['sandboxes:write', 'sandboxes:exec'],
      labels,
      member: { email: asked.email, role: 'developer' },
    });
    expect((await client.get('/v1/invitations')).body.data).toEqual([]);
    const { body, text } = await client.get('/v1/events', { category: 'member', limit: 3 });
    const redacted_email = 'G***r@e***.com';
    expect(body.data).toMatchObject([
      { event_type: 'member_session_opened', payload: { method: 'link', redacted_email } },
      { event_type: 'member_added', actor: { kind: 'user', redacted_email }, payload: { redacted_email } },
      { event_type: 'member_invited', payload: { invitation_id: shown.id, redacted_email, replaces: null } },
    ]);
    expect(text).not.toContain('Hopper');
  });

  test('is refused after its revocation, its end, and a further one, and is stored as a hash', async () => {
    const invite = async () => {
      const { body } = await client.post('/v1/invitations', { email: 'grace@example.com', role: 'viewer' });
      return { id: body.id as string, token: tokenOf(body.link) };
    };
    const [first, second] = [await invite(), await invite()];
    const { rows } = await service.ctx.pool.query<{ text: string }>(
      'select i::text as text from member_invitations i where org_id = $1',
      [client.org.id],
    );
    expect(rows.map(({ text }) => text).join()).toContain(hashOf(second.token).toString('hex'));
    expect(rows.length).toBe(1);
    expect((await client.delete(`/v1/invitations/${second.id}`)).status).toBe(200);
    const gone = await client.delete(`/v1/invitations/${second.id}`);
    expect([gone.status, gone.body.error.code]).toEqual([404, 'invitation_not_found']);
    const third = await invite();
    await service.ctx.pool.query('update member_invitations set expires_at = now() where id = $1', [
      third.id,
    ]);
    for (const { token } of [first, second, third]) {
      expect((await postLink(service.url, token)).status).toBe(401);
    }
    await deleteExpiredLinks(service.ctx);
    expect((await client.get('/v1/invitations')).body.data).toEqual([]);
    expect(service.logs.join('\n')).not.toContain(first.token);
  });

  test.each([
    [{ email: 'nobody', role: 'viewer' }, 400, 'invalid_request'],
    [{ email: 'a@example.com', role: 'king' }, 400, 'invalid_request'],
    [{ email: 'a@example.com', role: 'finance', labels: { team: 'ml' } }, 400, 'invalid_request'],
    [{ email: 'a@example.com', role: 'viewer', expires_in_hours: 0 }, 400, 'invalid_request'],
    [{ email: 'a@example.com', role: 'viewer', expires_in_hours: 721 }, 400, 'invalid_request'],
    [{ email: 'a@example.com', role: 'owner' }, 403, 'owner_required'],
  ])('%j is answered %d %s', async (asked, status, code) => {
    const { body, status: found } = await client.post('/v1/invitations', asked);
    expect([found, body.error.code]).toEqual([status, code]);
  });

  test('for a member is refused', async () => {
    const { body } = await client.post('/v1/invitations', {
      email: owner.email.toUpperCase(),
      role: 'viewer',
    });
    expect(body.error.code).toBe('member_already_exists');
  });

  test('is one of a bounded number', async () => {
    await service.ctx.pool.query(
      `insert into member_invitations
       select $1::uuid, gen_random_uuid(), n || '@example.com', 'viewer', '{}', sha256(convert_to(n || $3, 'utf8')), now(), '{"kind":"system","code":"operator","label":"test"}', now() + interval '1 day'
       from generate_series(1, $2::int) as n`,
      [client.org.id, MOST_INVITATIONS, client.org.slug],
    );
    const { body } = await client.post('/v1/invitations', { email: 'more@example.com', role: 'viewer' });
    expect(body.error).toMatchObject({ code: 'quota_exceeded', details: { limit: MOST_INVITATIONS } });
    const replaced = await client.post('/v1/invitations', { email: '1@example.com', role: 'viewer' });
    expect(replaced.status).toBe(200);
  });
});

describe('owners alone', () => {
  test.each<[string, (path: string) => [string, string, unknown?]]>([
    ['invite an owner', () => ['POST', '/v1/invitations', { email: 'a@example.com', role: 'owner' }]],
    ['change an owner', (path) => ['PATCH', path, { role: 'viewer' }]],
    ['remove an owner', (path) => ['DELETE', path]],
  ])('%s', async (_, request) => {
    // Not the last owner.
    const other = await newMember(service, client.org.id, 'owner');
    const asked = request(`/v1/members/${other.id}`);
    const refused = await send(byAdmin, ...asked);
    expect([refused.status, refused.body.error.code]).toEqual([403, 'owner_required']);
    const [method, path, body] = asked;
    const byKey = await client.request(method, path, body === undefined ? {} : { body });
    expect([byKey.status, byKey.body.error.code]).toEqual([403, 'owner_required']);
    expect((await send(byOwner, ...asked)).status).toBe(200);
  });

  test('revoke the invitation of an owner, and replace it', async () => {
    const email = 'future.owner@example.com';
    const made = await send(byOwner, 'POST', '/v1/invitations', { email, role: 'owner' });
    expect(made.status).toBe(200);
    const revoke = (by: ConsoleSession, id: string) => send(by, 'DELETE', `/v1/invitations/${id}`);
    const replace = (by: ConsoleSession) =>
      send(by, 'POST', '/v1/invitations', { email: email.toUpperCase(), role: 'viewer' });
    for (const refused of [await revoke(byAdmin, made.body.id), await replace(byAdmin)]) {
      expect([refused.status, refused.body.error.code]).toEqual([403, 'owner_required']);
    }
    expect((await client.get('/v1/invitations')).body.data).toMatchObject([{ email, role: 'owner' }]);
    const replaced = await replace(byOwner);
    expect(replaced.body).toMatchObject({ role: 'viewer' });
    expect((await revoke(byAdmin, replaced.body.id)).status).toBe(200);
  });

  test('make an owner of a member', async () => {
    const other = await newMember(service, client.org.id, 'viewer');
    const rise = (by: ConsoleSession) => send(by, 'PATCH', `/v1/members/${other.id}`, { role: 'owner' });
    expect((await rise(byAdmin)).status).toBe(403);
    expect((await rise(byOwner)).body).toMatchObject({ id: other.id, role: 'owner' });
  });

  test('remain: the last one is neither changed nor removed', async () => {
    for (const [method, body] of [
      ['PATCH', { role: 'admin' as Role }],
      ['DELETE', undefined],
    ] as const) {
      const answer = await send(byOwner, method, `/v1/members/${owner.id}`, body);
      expect([answer.status, answer.body.error.code]).toEqual([409, 'last_owner']);
    }
  });
});

test('a removed member has no session any more, and a member may remove itself', async () => {
  const other = await newMember(service, client.org.id, 'admin');
  const session = await signInMember(service, client.org.id, other);
  expect((await send(session, 'DELETE', `/v1/members/${other.id}`)).status).toBe(200);
  await until(
    () => statusOf(session),
    (status) => status === 401,
  );
  const again = await send(byOwner, 'DELETE', `/v1/members/${other.id}`);
  expect([again.status, again.body.error.code]).toEqual([404, 'member_not_found']);
});

test('a change of labels needs a role that has them', async () => {
  const other = await newMember(service, client.org.id, 'viewer');
  const path = `/v1/members/${other.id}`;
  const narrowed = await client.patch(path, { labels: { team: 'ml' } });
  expect(narrowed.body).toMatchObject({ role: 'viewer', labels: { team: 'ml' } });
  const refused = await client.patch(path, { role: 'auditor' });
  expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'labels' }]);
  expect((await client.patch(path, { role: 'auditor', labels: {} })).body).toMatchObject({ role: 'auditor' });
});

test.each([
  ['{}', {}],
  ['the present access', { role: 'viewer', labels: { team: 'ml' } }],
])('a change to %s records no event', async (_, body) => {
  const { id } = await newMember(service, client.org.id, 'viewer', { team: 'ml' });
  const unchanged = await client.patch(`/v1/members/${id}`, body);
  expect([unchanged.status, unchanged.body.role, unchanged.body.labels]).toEqual([
    200,
    'viewer',
    { team: 'ml' },
  ]);
  expect((await client.get('/v1/events', { event_type: 'member_changed' })).body.data).toEqual([]);
});

test.each<[string, number, (pool: Pool, id: string) => Promise<unknown>]>([
  ['is removed', 401, (pool, id) => pool.query('delete from org_members where id = $1', [id])],
  [
    'loses the role',
    403,
    (pool, id) => pool.query(`update org_members set role = 'viewer' where id = $1`, [id]),
  ],
])('an administrator who %s meanwhile changes nothing', async (_, refused, end) => {
  const { pool } = service.ctx;
  const admin = await newMember(service, client.org.id, 'admin');
  const session = await signInMember(service, client.org.id, admin);
  const other = await newMember(service, client.org.id, 'viewer');
  // The change waits for the lock of its subject, and the removal of the caller commits before.
  const holder = await pool.connect();
  await holder.query('begin');
  await holder.query('select from org_members where id = $1 for update', [other.id]);
  const change = send(session, 'PATCH', `/v1/members/${other.id}`, { role: 'admin' });
  await until(
    () =>
      pool.query('select from pg_stat_activity where wait_event_type = $1 and datname = current_database()', [
        'Lock',
      ]),
    ({ rowCount }) => rowCount! > 0,
  );
  await end(pool, admin.id);
  await holder.query('commit');
  holder.release();
  expect([refused, 'cut']).toContain(await statusOrCut(change));
  const { body } = await client.get('/v1/members', { limit: 100 });
  expect(body.data.find(({ id }: any) => id === other.id).role).toBe('viewer');
});
