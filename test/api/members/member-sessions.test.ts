import { beforeEach, describe, expect, test } from 'vitest';
import { hashOf } from '../../../src/access/key-secret.js';
import { MEMBER_TOKEN } from '../../../src/access/member-session.js';
import { redactEmail } from '../../../src/audit/events/redact-email.js';
import { deleteExpiredSessions } from '../../../src/console/jobs.js';
import { changeMember } from '../../../src/members/change.js';
import { deleteExpiredLinks } from '../../../src/members/jobs.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import { sessionAt, type ConsoleSession } from '../../support/console.js';
import { byOperator, linkOf, newMember, postLink, signInMember, statusOf } from '../../support/members.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest } from '../../support/service.js';
import { useTwoServices } from '../../support/two-services.js';

const its = useTwoServices();
let member: MemberRow;
let here: ConsoleSession;
let there: ConsoleSession;

beforeEach(async () => {
  member = await newMember(its.first, its.client.org.id, 'admin');
  here = await signInMember(its.first, its.client.org.id, member);
  there = sessionAt(its.second.url, here);
});

async function codeOf(answer: Response): Promise<[number, string]> {
  const { error } = (await answer.json()) as { error: { code: string } };
  return [answer.status, error.code];
}

/** Ends the session, and expects each process to refuse it. */
async function expectEnd(end: () => Promise<unknown>): Promise<void> {
  expect([await statusOf(here), await statusOf(there)]).toEqual([200, 200]);
  await end();
  for (const session of [here, there]) {
    await until(
      () => statusOf(session),
      (status) => status === 401,
    );
    expect(await codeOf(await session.fetch('/v1/me/org'))).toEqual([401, 'invalid_session']);
  }
}

const execute = (sql: string) => its.first.ctx.pool.query(sql, [member.id]);

describe('a link', () => {
  test('opens a session of the member in a cookie that scripts cannot read', async () => {
    const answer = await postLink(its.first.url, await linkOf(its.first, its.client.org.id, member));
    expect(answer.status).toBe(201);
    expect(await answer.json()).toEqual({
      csrf_token: expect.stringMatching(/^[\w-]{43}$/),
      expires_at: expect.any(String),
      organization: its.client.org,
      organizations: [its.client.org],
      scopes: ['org:admin'],
      labels: {},
      key: null,
      member: { id: member.id, email: member.email, display_name: null, role: 'admin' },
    });
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(
        /^sandkeep_session=skm_[0-9A-Za-z]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/,
      ),
    ]);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    const again = await here.fetch('/console/session');
    expect(await again.json()).toMatchObject({ member: { email: member.email }, key: null });
  });

  test('opens one session, also when two use it at once', async () => {
    const link = await linkOf(its.first, its.client.org.id, member);
    const answers = await Promise.all([postLink(its.first.url, link), postLink(its.second.url, link)]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 401]);
    expect(await codeOf(await postLink(its.first.url, link))).toEqual([401, 'invalid_sign_in_link']);
  });

  test('is refused when it is unknown, malformed, expired, replaced, or of a removed member', async () => {
    const replaced = await linkOf(its.first, its.client.org.id, member);
    const expired = await linkOf(its.first, its.client.org.id, member);
    await execute(`update member_links set expires_at = now() where member_id = $1`);
    const gone = await newMember(its.first, its.client.org.id, 'viewer');
    const removed = await linkOf(its.first, its.client.org.id, gone);
    await removeMember(its.first.ctx.pool, its.client.org.id, gone, byOperator());
    const unknown = `skl_${'A'.repeat(43)}`;
    for (const link of ['', 'x', unknown, `${expired}A`, replaced, expired, removed, MEMBER_TOKEN.make()]) {
      const answer = await postLink(its.first.url, link);
      expect(answer.headers.getSetCookie()).toEqual([]);
      expect([link, ...(await codeOf(answer))]).toEqual([link, 401, 'invalid_sign_in_link']);
    }
    await deleteExpiredLinks(its.first.ctx);
    expect((await execute('select from member_links where member_id = $1')).rows).toEqual([]);
  });

  test('is refused to a page of another origin, and a foreign cookie is never adopted', async () => {
    const link = await linkOf(its.first, its.client.org.id, member);
    expect(await codeOf(await postLink(its.first.url, link, { origin: 'https://evil.example' }))).toEqual([
      403,
      'origin_not_allowed',
    ]);
    const given = MEMBER_TOKEN.make();
    const answer = await postLink(its.first.url, link, { cookie: `sandkeep_session=${given}` });
    expect(answer.status).toBe(201);
    expect(answer.headers.getSetCookie()[0]).not.toContain(given);
    const { status } = await fetch(`${its.first.url}/v1/me/org`, {
      headers: { cookie: `sandkeep_session=${given}` },
    });
    expect(status).toBe(401);
  });

  test('and the token of the session are stored as hashes, and are in no log line', async () => {
    const link = await linkOf(its.first, its.client.org.id, member);
    const stored = async () => {
      const { rows } = await its.first.ctx.pool.query<{ text: string }>(
        'select l::text as text from member_links l union all select s::text from console_sessions s',
      );
      return rows.map(({ text }) => text).join('\n');
    };
    expect(await stored()).toContain(hashOf(link).toString('hex'));
    const token = here.cookie.split('=')[1]!;
    expect(await stored()).toContain(hashOf(token).toString('hex'));
    await postLink(its.first.url, link);
    for (const secret of [link, token]) {
      expect(await stored()).not.toContain(secret);
      expect(its.first.logs.join('\n')).not.toContain(secret);
    }
  });

  test('guesses are counted by address', async () => {
    const strict = await startForTest({ worker: false, settings: { failedAuthLimit: 3 } });
    const statuses: number[] = [];
    for (let n = 0; n < 5; n += 1) {
      statuses.push((await postLink(strict.url, `skl_${String(n).repeat(43)}`)).status);
    }
    expect(statuses).toEqual([401, 401, 401, 429, 429]);
  });
});

describe('a session of a member ends in every process at', () => {
  test('the sign-out', async () => {
    await expectEnd(async () => {
      expect((await there.fetch('/console/session', { method: 'DELETE' })).status).toBe(204);
    });
  });

  test('the removal of the member', async () => {
    await expectEnd(() => removeMember(its.first.ctx.pool, its.client.org.id, member, byOperator()));
  });

  test('its absolute end', async () => {
    await expectEnd(() => execute('update console_sessions set expires_at = now() where member_id = $1'));
  });

  test('its idle end', async () => {
    await expectEnd(() => execute('update console_sessions set idle_at = now() where member_id = $1'));
    await deleteExpiredSessions(its.first.ctx);
    expect((await execute('select from console_sessions where member_id = $1')).rows).toEqual([]);
  });
});

test('a stream ends with the session of a member', async () => {
  const answer = await there.fetch('/v1/events/stream');
  expect(answer.status).toBe(200);
  const ended = answer.text().then(
    () => 'ended',
    () => 'ended',
  );
  await removeMember(its.first.ctx.pool, its.client.org.id, member, byOperator());
  expect(await ended).toBe('ended');
});

test('the use of a session moves its idle end, and never its absolute one', async () => {
  const busy = await startForTest({ worker: false, beside: its.first, settings: { keyUseWriteMs: 20 } });
  const session = sessionAt(busy.url, here);
  await execute(
    `update console_sessions set idle_at = now() + interval '30 minutes', expires_at = '2100-01-01Z' where member_id = $1`,
  );
  await until(
    async () => {
      expect(await statusOf(session)).toBe(200);
      const { rows } = await its.first.ctx.pool.query<{ moved: boolean; end: string }>(
        `select idle_at > now() + interval '100 minutes' as moved, expires_at::text as end
         from console_sessions where member_id = $1`,
        [member.id],
      );
      return rows[0]!;
    },
    ({ moved, end }) => moved && end.startsWith('2100'),
  );
});

test('a change of the role and of its limits holds in open sessions', async () => {
  const change = (role: 'finance' | 'developer', labels: Record<string, string>) =>
    changeMember(its.first.ctx.pool, its.client.org.id, member, { role, labels }, byOperator());
  const seen = async () => [
    await statusOf(there, '/v1/billing/usage'),
    await statusOf(there, '/v1/sandboxes'),
    await statusOf(there, '/v1/volumes'),
  ];
  const become = async (wanted: number[]) => {
    const found = await until(seen, (statuses) => JSON.stringify(statuses) === JSON.stringify(wanted));
    expect(found).toEqual(wanted);
  };
  await become([200, 200, 200]);
  await change('finance', {});
  await become([200, 403, 403]);
  await change('developer', {});
  await become([403, 200, 200]);
  await change('developer', { team: 'ml' });
  await become([403, 200, 403]);
});

test('a member that is limited to labels sees and makes only such sandboxes', async () => {
  const narrow = await newMember(its.first, its.client.org.id, 'developer', { team: 'ml' });
  const session = await signInMember(its.first, its.client.org.id, narrow);
  const made = [];
  for (const team of ['ml', 'web']) {
    const { body } = await its.client.post('/v1/sandboxes', smallRequest(`of-${team}`, { labels: { team } }));
    made.push(body.id as string);
  }
  const [own, other] = made as [string, string];
  const list = (await (await session.fetch('/v1/sandboxes')).json()) as { data: { id: string }[] };
  expect(list.data.map(({ id }) => id)).toEqual([own]);
  expect(await statusOf(session, `/v1/sandboxes/${own}`)).toBe(200);
  expect(await statusOf(session, `/v1/sandboxes/${other}`)).toBe(404);
  const create = async (labels: Record<string, string>) =>
    session.fetch('/v1/sandboxes', {
      method: 'POST',
      body: JSON.stringify(smallRequest('by-the-member', { labels })),
    });
  expect(await codeOf(await create({ team: 'web' }))).toEqual([403, 'label_not_allowed']);
  expect((await create({ team: 'ml' })).status).toBe(200);
});

test('the actor of a change is the person, without the address', async () => {
  const created = await here.fetch('/v1/volumes', {
    method: 'POST',
    body: JSON.stringify({ name: member.id }),
  });
  const volume = (await created.json()) as { id: string };
  const key = await here.fetch('/v1/keys', {
    method: 'POST',
    body: JSON.stringify({ name: 'mine', scopes: ['sandboxes:read'] }),
  });
  const { id: keyId, created_by } = (await key.json()) as { id: string; created_by: unknown };
  const actor = {
    kind: 'user',
    user_id: member.user_id,
    label: redactEmail(member.email),
    redacted_email: redactEmail(member.email),
  };
  expect(created_by).toEqual(actor);
  const { body, text } = await its.client.get('/v1/events', { actor_id: member.user_id, limit: 100 });
  const facts = {
    member_id: member.id,
    user_id: member.user_id,
    redacted_email: redactEmail(member.email),
    role: 'admin',
    labels: {},
  };
  expect(body.data).toMatchObject([
    { event_type: 'api_key_created', actor, payload: { api_key_id: keyId } },
    { event_type: 'volume_created', actor, payload: { volume_id: volume.id } },
    { event_type: 'member_session_opened', actor, payload: { ...facts, method: 'link' } },
  ]);
  expect(text).not.toContain(member.email);
});

test('a later sign-in ends the oldest of twenty sessions of the member', async () => {
  await execute(
    `insert into console_sessions (org_id, hash, id, member_id, created_at, expires_at, idle_at)
     select org_id, sha256(n::text::bytea || id::text::bytea), gen_random_uuid(), member_id,
       created_at + n * interval '1 second', expires_at, idle_at
     from console_sessions, generate_series(1, 19) as n where member_id = $1`,
  );
  await expectEnd(() => signInMember(its.first, its.client.org.id, member));
  const { rows } = await its.first.ctx.pool.query<{ count: number }>(
    'select count(*)::int as count from console_sessions where member_id = $1',
    [member.id],
  );
  expect(rows[0]!.count).toBe(20);
});

test('the organization shows the role of the member', async () => {
  expect(await (await here.fetch('/v1/me/org')).json()).toMatchObject({ ...its.client.org, role: 'admin' });
});

test('a session opens nothing of another organization', async () => {
  const other = await its.first.newOrg();
  const { body: sandbox } = await other.post('/v1/sandboxes', smallRequest('foreign'));
  expect(await statusOf(here, `/v1/sandboxes/${sandbox.id}`)).toBe(404);
  const stranger = await signInMember(
    its.first,
    other.org.id,
    await newMember(its.first, other.org.id, 'owner'),
  );
  const members = (await (await stranger.fetch('/v1/members')).json()) as { data: { email: string }[] };
  expect(members.data.map(({ email }) => email)).not.toContain(member.email);
});
