import { generateKeyPairSync } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { MEMBER_SESSION_MS } from '../../../src/console/open-member-session.js';
import { RECENT_MS } from '../../../src/console/passkey-routes.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import { CHALLENGE_MS, MOST_CHALLENGES } from '../../../src/people/passkeys/challenge.js';
import { deleteExpiredChallenges } from '../../../src/people/passkeys/jobs.js';
import { MOST_PASSKEYS } from '../../../src/people/passkeys/register.js';
import { removePasskeys } from '../../../src/people/passkeys/remove.js';
import {
  addPasskey,
  answeredBy,
  Authenticator,
  beginSignIn,
  finishSignIn,
  PASSKEYS,
  signInWith,
  type Answered,
  type Deviation,
  type Options,
} from '../../support/authenticator.js';
import { sessionAt, type ConsoleSession } from '../../support/console.js';
import { byOperator, newMember, signInMember, statusOf } from '../../support/members.js';
import { localProvider } from '../../support/openid/provider.js';
import { until } from '../../support/polling.js';
import { startForTest } from '../../support/service.js';
import { useTwoServices } from '../../support/two-services.js';

const its = useTwoServices();
let url: string;
let member: MemberRow;
let session: ConsoleSession;
let authenticator: Authenticator;

/** Browsers have passkeys at localhost without TLS, and not at an address. */
const atLocalhost = (address: string) => address.replace('127.0.0.1', 'localhost');

beforeEach(async () => {
  url = atLocalhost(its.first.url);
  member = await newMember(its.first, its.client.org.id, 'viewer');
  session = sessionAt(url, await signInMember(its.first, its.client.org.id, member));
  authenticator = new Authenticator(url);
});

async function list(of = session): Promise<{ id: string; name: string; is_current: boolean }[]> {
  const { body } = await answeredBy(await of.fetch(PASSKEYS));
  return body['passkeys'] as Awaited<ReturnType<typeof list>>;
}

async function remove(id: string, of = session): Promise<Answered> {
  return answeredBy(await of.fetch(`${PASSKEYS}/${id}`, { method: 'DELETE' }));
}

async function rename(id: string, name: string, of = session): Promise<Answered> {
  return answeredBy(await of.fetch(`${PASSKEYS}/${id}`, { method: 'PATCH', body: JSON.stringify({ name }) }));
}

/** The session of an accepted sign-in. */
function sessionOf({ status, body, cookies }: Answered, at = url): ConsoleSession {
  expect(status).toBe(201);
  const [cookie] = cookies[0]!.split(';');
  return sessionAt(at, {
    cookie: cookie!,
    csrf: body['csrf_token'] as string,
    expiresAt: body['expires_at'] as string,
  });
}

/** The latest event of a type about the member. */
async function eventOf(type: string): Promise<Record<string, unknown> | undefined> {
  const { body } = await its.client.get(`/v1/events?event_type=${type}&resource_id=${member.id}&limit=1`);
  return (body.data as Record<string, unknown>[])[0];
}

const REFUSED = [401, 'invalid_passkey'];
const codeOf = ({ status, code }: Answered) => [status, code];

describe('a passkey', () => {
  test('is added by its member, and signs in at each process', async () => {
    const added = await addPasskey(session, authenticator, { name: 'laptop' });
    expect(added).toMatchObject({ status: 201, body: { name: 'laptop', used_at: null } });
    const other = atLocalhost(its.second.url);
    const { options, cookie } = await beginSignIn(url);
    const answer = authenticator.get(options, { origin: other });
    const opened = sessionOf(await finishSignIn(other, answer, cookie), other);
    expect(await statusOf(opened)).toBe(200);
    const { body } = await answeredBy(await opened.fetch('/console/session'));
    expect(body).toMatchObject({ member: { id: member.id, role: 'viewer' }, key: null });
    const [passkey] = await list(opened);
    expect(passkey).toMatchObject({ name: 'laptop', is_current: true, used_at: expect.any(String) });
    expect(await list()).toMatchObject([{ is_current: false }]);
  });

  test('is an event of its member, without the address', async () => {
    const { body } = await addPasskey(session, authenticator, { name: 'laptop' });
    sessionOf(await signInWith(url, authenticator));
    const added = await eventOf('member_passkey_added');
    expect(added).toMatchObject({
      actor: { kind: 'user', user_id: member.user_id },
      payload: { member_id: member.id, passkey_id: body['id'], name: 'laptop' },
    });
    const opened = await eventOf('member_session_opened');
    expect(opened).toMatchObject({ payload: { method: 'passkey', passkey_id: body['id'] } });
    expect(JSON.stringify([added, opened])).not.toContain(member.email);
  });

  test('gives a session in a cookie, and takes the cookie of the challenge away', async () => {
    await addPasskey(session, authenticator);
    const begun = await beginSignIn(url);
    expect(begun.cookies).toEqual([
      expect.stringMatching(
        /^sandkeep_passkey=skw_[0-9A-Za-z]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=300$/,
      ),
    ]);
    expect(begun.options).toEqual({
      challenge: expect.stringMatching(/^[\w-]{43}$/),
      rpId: 'localhost',
      timeout: CHALLENGE_MS,
      userVerification: 'required',
    });
    const { cookies } = await finishSignIn(url, authenticator.get(begun.options), begun.cookie);
    expect(cookies[0]).toMatch(/^sandkeep_session=skm_.*; HttpOnly; SameSite=Strict; Max-Age=43200$/);
    expect(cookies[1]).toMatch(/^sandkeep_passkey=; .*Max-Age=0$/);
  });

  test('is for the authenticator alone, with the names of person and organization', async () => {
    const { body } = await answeredBy(await session.fetch(`${PASSKEYS}/options`, { method: 'POST' }));
    expect(body).toMatchObject({
      rp: { id: 'localhost', name: 'Sandkeep' },
      user: { name: `${member.email} (${its.client.org.name})`, displayName: member.email },
      attestation: 'none',
      authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
      excludeCredentials: [],
    });
    await addPasskey(session, authenticator);
    const again = await answeredBy(await session.fetch(`${PASSKEYS}/options`, { method: 'POST' }));
    expect(again.body['excludeCredentials']).toEqual([
      {
        type: 'public-key',
        id: authenticator.credentialId.toString('base64url'),
        transports: ['internal'],
      },
    ]);
  });

  test('cannot be added by a key, long after the sign-in, or beyond the limit', async () => {
    const options = `${url}${PASSKEYS}/options`;
    const headers = { authorization: `Bearer ${its.client.key}` };
    const byKey = await answeredBy(await fetch(options, { method: 'POST', headers }));
    expect(codeOf(byKey)).toEqual([403, 'passkeys_unavailable']);
    for (let count = 0; count < MOST_PASSKEYS; count += 1) {
      expect((await addPasskey(session, new Authenticator(url))).status).toBe(201);
    }
    expect(codeOf(await addPasskey(session, authenticator))).toEqual([403, 'quota_exceeded']);
    const [passkey] = await list();
    await its.first.ctx.pool.query('update console_sessions set expires_at = $2 where member_id = $1', [
      member.id,
      addMillis(now(), MEMBER_SESSION_MS - RECENT_MS),
    ]);
    // Another process has not cached the session.
    const late = sessionAt(atLocalhost(its.second.url), session);
    expect(codeOf(await addPasskey(late, authenticator))).toEqual([403, 'recent_sign_in_required']);
    expect(codeOf(await remove(passkey!.id, late))).toEqual([403, 'recent_sign_in_required']);
  });

  test('is counted while others are added', async () => {
    const sessions: ConsoleSession[] = [];
    for (let count = 0; count < MOST_PASSKEYS + 2; count += 1) {
      sessions.push(sessionAt(url, await signInMember(its.first, its.client.org.id, member)));
    }
    const added = await Promise.all(sessions.map((own) => addPasskey(own, new Authenticator(url))));
    expect(added.filter(({ status }) => status === 201)).toHaveLength(MOST_PASSKEYS);
    expect(await list()).toHaveLength(MOST_PASSKEYS);
  });

  test('gets another name from its member alone, with an event, and signs in as before', async () => {
    await addPasskey(session, authenticator, { name: 'first' });
    const [passkey] = await list();
    expect(await rename(passkey!.id, ' old laptop ')).toMatchObject({
      status: 200,
      body: { name: 'old laptop' },
    });
    expect(await eventOf('member_passkey_renamed')).toMatchObject({
      actor: { user_id: member.user_id },
      payload: { passkey_id: passkey!.id, name: 'old laptop', previous_name: 'first' },
    });
    for (const name of ['', ' ', 'a\0', 'x'.repeat(101)])
      expect((await rename(passkey!.id, name)).status).toBe(400);
    expect((await signInWith(url, authenticator)).status).toBe(201);
  });

  test('goes with its sessions, and stays while it is the only way in', async () => {
    await addPasskey(session, authenticator, { name: 'first' });
    const opened = sessionOf(await signInWith(url, authenticator));
    const [first] = await list();
    expect(codeOf(await remove(first!.id))).toEqual([409, 'last_passkey']);
    await addPasskey(session, new Authenticator(url), { name: 'second' });
    expect((await remove(first!.id)).status).toBe(204);
    expect(codeOf(await remove(first!.id))).toEqual([404, 'passkey_not_found']);
    expect(await statusOf(opened)).toBe(401);
    expect(await statusOf(session)).toBe(200);
    expect(codeOf(await signInWith(url, authenticator))).toEqual(REFUSED);
    expect(await eventOf('member_passkey_removed')).toMatchObject({
      actor: { user_id: member.user_id },
      payload: { passkey_id: first!.id, name: 'first' },
    });
  });

  test('stays as the last one when two are removed at once', async () => {
    await addPasskey(session, authenticator);
    await addPasskey(session, new Authenticator(url));
    const answers = await Promise.all((await list()).map(({ id }) => remove(id)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([204, 409]));
    expect(await list()).toHaveLength(1);
  });

  test('is removed by the operator, also as the last one', async () => {
    await addPasskey(session, authenticator, { name: 'lost' });
    const opened = sessionOf(await signInWith(url, authenticator));
    const { pool } = its.first.ctx;
    const removed = await removePasskeys(pool, its.client.org.id, member, null, byOperator());
    expect(removed).toMatchObject([{ name: 'lost' }]);
    await until(
      () => statusOf(opened),
      (status) => status === 401,
    );
    expect(codeOf(await signInWith(url, authenticator))).toEqual(REFUSED);
    expect(await eventOf('member_passkey_removed')).toMatchObject({ actor: { kind: 'system' } });
  });

  test('goes with its member', async () => {
    await addPasskey(session, authenticator);
    await removeMember(its.first.ctx.pool, its.client.org.id, member, byOperator());
    expect(codeOf(await signInWith(url, authenticator))).toEqual(REFUSED);
    const { rows } = await its.first.ctx.pool.query(
      'select from member_passkeys where member_id = $1 union all select from console_sessions where member_id = $1',
      [member.id],
    );
    expect(rows).toEqual([]);
  });

  test('can be neither removed nor used by another person', async () => {
    await addPasskey(session, authenticator);
    await addPasskey(session, new Authenticator(url));
    const [passkey] = await list();
    const neighbour = await newMember(its.first, its.client.org.id, 'owner');
    const foreign = await its.first.newOrg();
    const stranger = await newMember(its.first, foreign.org.id, 'owner');
    for (const [org, person] of [
      [its.client.org.id, neighbour],
      [foreign.org.id, stranger],
    ] as const) {
      const other = sessionAt(url, await signInMember(its.first, org, person));
      expect(await list(other)).toEqual([]);
      expect(codeOf(await remove(passkey!.id, other))).toEqual([404, 'passkey_not_found']);
      expect(codeOf(await rename(passkey!.id, 'mine', other))).toEqual([404, 'passkey_not_found']);
      const mine = new Authenticator(url);
      expect((await addPasskey(other, mine)).status).toBe(201);
      const { options, cookie } = await beginSignIn(url);
      const { user_handle: userHandle } = authenticator.get(options);
      // The handle is not signed.
      const answer = mine.get(options, { userHandle: userHandle! });
      expect(codeOf(await finishSignIn(url, answer, cookie))).toEqual(REFUSED);
      const copied = await addPasskey(other, mine, { credentialId: authenticator.credentialId });
      expect(codeOf(copied)).toEqual([400, 'passkey_refused']);
    }
    expect(await list()).toHaveLength(2);
  });
});

const FOREIGN = 'https://evil.example';

describe('a sign-in is refused', () => {
  beforeEach(async () => {
    expect((await addPasskey(session, authenticator)).status).toBe(201);
  });

  const otherKey = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  test.each<[string, Deviation]>([
    ['of another origin', { origin: FOREIGN }],
    ['of another port', { origin: 'http://localhost:1' }],
    ['for another relying party', { rpId: 'evil.example' }],
    ['with another challenge', { challenge: Buffer.alloc(32).toString('base64url') }],
    ['from a frame', { crossOrigin: true }],
    ['of a registration', { type: 'webauthn.create' }],
    ['without verification of the user', { isVerified: false }],
    ['without a person', { isPresent: false }],
    ['with a counter of before', { counter: 1 }],
    ['with the signature of another key', { key: otherKey }],
    ['without a member', { userHandle: Buffer.alloc(16).toString('base64url') }],
    ['with a handle of other bytes', { userHandle: 'AA' }],
    ['with an unknown credential', { credentialId: Buffer.alloc(32) }],
  ])('%s', async (_, how) => {
    expect(codeOf(await signInWith(url, authenticator, how))).toEqual(REFUSED);
    expect((await signInWith(url, authenticator, { counter: 100 })).status).toBe(201);
  });

  test('without the cookie, with another one, or with two', async () => {
    const [own, other] = [await beginSignIn(url), await beginSignIn(url)];
    const answer = authenticator.get(own.options);
    for (const cookie of ['', other.cookie, `${own.cookie}; ${own.cookie}`, 'sandkeep_passkey=skw_x']) {
      expect(codeOf(await finishSignIn(url, answer, cookie))).toEqual(REFUSED);
    }
    expect((await finishSignIn(url, answer, own.cookie)).status).toBe(201);
  });

  test('when it is repeated, also when two arrive at once', async () => {
    const { options, cookie } = await beginSignIn(url);
    const answer = authenticator.get(options);
    const both = await Promise.all([finishSignIn(url, answer, cookie), finishSignIn(url, answer, cookie)]);
    expect(new Set(both.map(({ status }) => status))).toEqual(new Set([201, 401]));
    expect(codeOf(await finishSignIn(url, answer, cookie))).toEqual(REFUSED);
  });

  test('after a refused answer to the same challenge', async () => {
    const { options, cookie } = await beginSignIn(url);
    expect(codeOf(await finishSignIn(url, authenticator.get(options, { origin: FOREIGN }), cookie))).toEqual(
      REFUSED,
    );
    expect(codeOf(await finishSignIn(url, authenticator.get(options), cookie))).toEqual(REFUSED);
  });

  test('after five minutes, and the challenge is forgotten', async () => {
    const { options, cookie } = await beginSignIn(url);
    const { ctx } = its.first;
    const later = addMillis(now(), CHALLENGE_MS + 60_000);
    await ctx.pool.query('update passkey_challenges set expires_at = now()');
    expect(codeOf(await finishSignIn(url, authenticator.get(options), cookie))).toEqual(REFUSED);
    await deleteExpiredChallenges({ pool: ctx.pool, now: () => later });
    expect((await ctx.pool.query('select from passkey_challenges')).rows).toEqual([]);
  });

  test('from a page of another origin', async () => {
    for (const headers of [{ origin: FOREIGN }, { 'sec-fetch-site': 'cross-site' }]) {
      const begun = await beginSignIn(url, headers);
      expect([begun.status, begun.code]).toEqual([403, 'origin_not_allowed']);
    }
  });

  test('with a body that is malformed or too large', async () => {
    const { options, cookie } = await beginSignIn(url);
    const answer = authenticator.get(options);
    const large = { ...answer, client_data: 'A'.repeat(20_000) };
    expect(codeOf(await finishSignIn(url, large, cookie))).toEqual([413, 'payload_too_large']);
    for (const bad of [
      { ...answer, signature: '' },
      { ...answer, signature: 'A'.repeat(2_000) },
      { ...answer, user_handle: 7 },
      { ...answer, credential_id: 'not base64' },
      {},
      [],
    ]) {
      expect(codeOf(await finishSignIn(url, bad, cookie))).toEqual([400, 'invalid_request']);
    }
    // None of them reached the challenge.
    for (const broken of ['client_data', 'authenticator_data', 'signature'] as const) {
      const begun = await beginSignIn(url);
      const damaged = { ...authenticator.get(begun.options), [broken]: 'AAAA' };
      expect(codeOf(await finishSignIn(url, damaged, begun.cookie))).toEqual(REFUSED);
    }
    expect((await finishSignIn(url, authenticator.get(options), cookie)).status).toBe(201);
  });
});

describe('a new passkey is refused', () => {
  test.each<[string, Deviation]>([
    ['of another origin', { origin: FOREIGN }],
    ['for another relying party', { rpId: 'evil.example' }],
    ['with another challenge', { challenge: Buffer.alloc(32).toString('base64url') }],
    ['from a frame', { crossOrigin: true }],
    ['of a sign-in', { type: 'webauthn.get' }],
    ['without verification of the user', { isVerified: false }],
    ['with an unknown algorithm', { algorithm: -9_999 }],
    ['with an attestation', { format: 'packed', statement: new Map([['alg', -7]]) }],
    ['with an unknown attestation', { format: 'made-up' }],
    ['with a statement in none', { statement: new Map([['x5c', []]]) }],
    ['with an empty id', { credentialId: Buffer.alloc(0) }],
  ])('%s', async (_, how) => {
    const { status } = await addPasskey(session, authenticator, how);
    expect(status).toBe(400);
    expect(await list()).toEqual([]);
    expect((await addPasskey(session, authenticator)).status).toBe(201);
  });

  test('when it is repeated, or answers the challenge of another session', async () => {
    const other = sessionAt(url, await signInMember(its.first, its.client.org.id, member));
    const begin = async (of: ConsoleSession) =>
      (await answeredBy(await of.fetch(`${PASSKEYS}/options`, { method: 'POST' })))
        .body as unknown as Options;
    const finish = async (of: ConsoleSession, answer: object) =>
      answeredBy(await of.fetch(PASSKEYS, { method: 'POST', body: JSON.stringify(answer) }));
    const answer = authenticator.create(await begin(session));
    expect((await finish(other, answer)).status).toBe(400);
    await begin(other);
    expect((await finish(other, answer)).status).toBe(400);
    expect((await finish(session, answer)).status).toBe(201);
    expect((await finish(session, answer)).status).toBe(400);
    // A challenge of a sign-in is none for a new passkey.
    const { options } = await beginSignIn(url);
    const wrong = new Authenticator(url).create({ ...(await begin(session)), challenge: options.challenge });
    expect((await finish(session, wrong)).status).toBe(400);
  });

  test('with a name that is empty or not printable, or a body that is too large', async () => {
    for (const name of ['', ' ', 'a'.repeat(101), 'a\0b']) {
      expect(codeOf(await addPasskey(session, authenticator, { name }))).toEqual([400, 'invalid_request']);
    }
    const large = JSON.stringify({ name: 'a'.repeat(20_000) });
    const answer = await answeredBy(await session.fetch(PASSKEYS, { method: 'POST', body: large }));
    expect(answer.code).toBe('payload_too_large');
  });

  test('without the token of the session', async () => {
    const headers = { cookie: session.cookie };
    for (const [path, method] of [
      [PASSKEYS, 'POST'],
      [`${PASSKEYS}/options`, 'POST'],
      [`${PASSKEYS}/${member.id}`, 'DELETE'],
    ] as const) {
      const answer = await answeredBy(await fetch(url + path, { method, headers }));
      expect(codeOf(answer)).toEqual([403, 'invalid_csrf_token']);
    }
  });
});

test('nobody fills the table of challenges', async () => {
  const { pool } = its.first.ctx;
  await pool.query('delete from passkey_challenges');
  await pool.query(
    `insert into passkey_challenges (hash, purpose, source, challenge, created_at, expires_at)
     select sha256(n::text::bytea), 'sign_in', sha256((n % 200)::text::bytea), sha256('')::bytea,
       now() - interval '1 minute', now() + interval '1 minute' from generate_series(1, $1::int) n`,
    [MOST_CHALLENGES.total + 50],
  );
  const last = [];
  for (let count = 0; count <= MOST_CHALLENGES.each; count += 1) last.push(await beginSignIn(url));
  expect(last.every(({ status }) => status === 200)).toBe(true);
  const { rows } = await pool.query<{ all: number; own: number }>(
    `select count(*)::int as all, count(*) filter (where created_at > now() - interval '50 seconds')::int as own
     from passkey_challenges`,
  );
  expect(rows[0]!.own).toBe(MOST_CHALLENGES.each);
  expect(rows[0]!.all).toBeLessThanOrEqual(MOST_CHALLENGES.total);
  expect(rows[0]!.all).toBeGreaterThan(MOST_CHALLENGES.total - MOST_CHALLENGES.each);
});

test('with a provider, passkeys are for members without an account there', async () => {
  const { pool } = its.first.ctx;
  const beside = await startForTest({
    beside: its.first,
    worker: false,
    settings: { provider: localProvider('https://login.example.com') },
  });
  const at = atLocalhost(beside.url);
  const own = new Authenticator(at);
  const there = sessionAt(at, session);
  expect((await addPasskey(there, own)).status).toBe(201);
  sessionOf(await signInWith(at, own), at);
  await pool.query(
    `with account as (insert into people (id, issuer, subject, created_at, signed_in_at)
       values (gen_random_uuid(), 'https://login.example.com', $1, now(), now()) returning id)
     update org_members set person_id = account.id from account where org_members.id = $1::uuid`,
    [member.id],
  );
  expect(codeOf(await signInWith(at, own))).toEqual(REFUSED);
  expect(codeOf(await addPasskey(there, new Authenticator(at)))).toEqual([403, 'passkeys_unavailable']);
  const { body } = await answeredBy(await there.fetch(PASSKEYS));
  expect(body).toMatchObject({ unavailable: 'You sign in with the test provider.', passkeys: [{}] });
  // The account is the other way in.
  const [passkey] = await list(there);
  expect((await remove(passkey!.id, there)).status).toBe(204);
});

describe('passkeys are off', () => {
  const begin = async (at: string) => codeOf(await beginSignIn(at));

  test('at an address, and at another host than the public one', async () => {
    expect(await begin(its.first.url)).toEqual([403, 'passkeys_unavailable']);
    const elsewhere = await startForTest({
      settings: { passkeys: { id: 'sandkeep.example.com', origin: 'https://sandkeep.example.com' } },
    });
    const begun = await beginSignIn(atLocalhost(elsewhere.url));
    expect(begun.body['error']).toMatchObject({
      message: 'Passkeys work only at https://sandkeep.example.com: open the console there.',
    });
    const options = await fetch(`${elsewhere.url}/console/sign-in/options`);
    expect(await options.json()).toMatchObject({ passkeys: false });
  });

  test('where the operator has turned them off', async () => {
    const without = await startForTest({ settings: { passkeys: { off: 'No passkeys.' } } });
    expect(await begin(atLocalhost(without.url))).toEqual([403, 'passkeys_unavailable']);
  });
});
