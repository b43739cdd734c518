import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { redactEmail } from '../../../src/audit/events/redact-email.js';
import { addMember } from '../../../src/members/add.js';
import { unlinkMember } from '../../../src/members/unlink.js';
import type { Client } from '../../support/client.js';
import { sessionAt, type ConsoleSession } from '../../support/console.js';
import { postLink, statusOf } from '../../support/members.js';
import { HttpBrowser } from '../../support/openid/browser.js';
import { startProvider, startServiceWith, type TestProvider } from '../../support/openid/provider.js';
import { until } from '../../support/polling.js';
import type { TestService } from '../../support/service.js';

const RULES = [
  { group: 'platform', org: '', role: 'admin' },
  { group: 'ml', org: '', role: 'developer' },
  { group: 'readers', org: '', role: 'viewer' },
] as const;

let provider: TestProvider;
let service: TestService;
let client: Client;
let browser: HttpBrowser;
let people = 0;

beforeAll(async () => {
  provider = await startProvider();
  service = await startServiceWith(provider.settings, { worker: false });
  await provider.register();
});
afterAll(async () => {
  await service.close();
  await provider.close();
});
beforeEach(async () => {
  client = await service.newOrg();
  browser = new HttpBrowser();
  provider.settings.groupRules = [];
});

/** An account of the provider, and the member of the same address if it has a role. */
async function newPerson(
  role: 'owner' | 'developer' | null,
  claims: Record<string, unknown> = {},
): Promise<{ account: string; email: string; memberId: string | undefined }> {
  people += 1;
  const account = `account-${people}`;
  const email = `Person.${people}@example.com`;
  await provider.setAccount(account, {
    email: email.toLowerCase(),
    email_verified: true,
    name: 'Ada',
    ...claims,
  });
  const member =
    role &&
    (await addMember(service.ctx.pool, client.org.id, { email, role, displayName: null }, operator('test')));
  return { account, email, memberId: member?.id };
}

/** Follows the sign-in up to the callback, which is not requested. */
async function authorize(account: string, path = '/', invitation?: string): Promise<URL> {
  const query = new URLSearchParams({ to: path, ...(invitation === undefined ? {} : { invitation }) });
  const begin = `${service.url}/console/sign-in/provider?${query.toString()}`;
  const isCallback = ({ pathname }: URL) => pathname === '/console/sign-in/callback';
  let { url } = await browser.follow(begin, isCallback);
  if (isCallback(new URL(url))) return new URL(url);
  const answer = await browser.submit(url, { account });
  ({ url } = await browser.follow(new URL(answer.headers.get('location')!, url).href, isCallback));
  return new URL(url);
}

/** Signs in. Returns the place where the browser is led. */
async function signIn(account: string, path = '/'): Promise<string> {
  const answer = await browser.request((await authorize(account, path)).href);
  expect(answer.status).toBe(303);
  return answer.headers.get('location')!;
}

async function session(): Promise<ConsoleSession & { body: any }> {
  const cookie = `sandkeep_session=${browser.cookie(service.url, 'sandkeep_session')}`;
  const answer = await fetch(`${service.url}/console/session`, { headers: { cookie } });
  const body: any = await answer.json();
  return {
    body,
    ...sessionAt(service.url, { cookie, csrf: body.csrf_token ?? '', expiresAt: body.expires_at ?? '' }),
  };
}

/** Whether a row of the account is kept. */
async function isKnown(account: string): Promise<boolean> {
  const { rows } = await service.ctx.pool.query('select from people where subject = $1', [account]);
  return rows.length > 0;
}

const problemOf = (place: string) => new URL(place).searchParams.get('problem');

describe('a sign-in by the provider', () => {
  test('opens a session of the member with the verified address, and leads to the page', async () => {
    const { account, email, memberId } = await newPerson('owner');
    expect(await signIn(account, '/volumes?x=1')).toBe(`${service.url}/console/volumes?x=1`);
    const { body } = await session();
    expect(body).toMatchObject({
      organization: client.org,
      organizations: [client.org],
      scopes: ['org:admin'],
      member: { id: memberId, email, role: 'owner' },
      key: null,
    });
    const { body: events, text } = await client.get('/v1/events', { event_type: 'member_session_opened' });
    expect(events.data).toMatchObject([
      { actor: { kind: 'user', redacted_email: redactEmail(email) }, payload: { method: 'provider' } },
    ]);
    expect(text.toLowerCase()).not.toContain(email.toLowerCase());
  });

  test('is asked for with PKCE, a state and a nonce, in cookies that only navigations send', async () => {
    const answer = await browser.request(`${service.url}/console/sign-in/provider`);
    const url = new URL(answer.headers.get('location')!);
    expect(url.origin).toBe(provider.settings.issuer);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      client_id: 'sandkeep',
      redirect_uri: `${service.url}/console/sign-in/callback`,
      response_type: 'code',
      scope: 'openid email profile',
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
      state: expect.stringMatching(/^[\w-]{43}$/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
    });
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(/^sandkeep_sign_in=[\w.-]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/),
    ]);
    expect(answer.headers.get('cache-control')).toBe('no-store');
  });

  test('names the provider on the sign-in page', async () => {
    const answer = await fetch(`${service.url}/console/sign-in/options`);
    expect(await answer.json()).toMatchObject({ provider: { name: 'the test provider' } });
  });

  test.each([
    ['//evil.example', '/'],
    ['https://evil.example', '/'],
    ['/\\evil.example', '/'],
    ['/%0d%0aset-cookie:x', '/%0d%0aset-cookie:x'],
    ['/a b', '/'],
    [`/${'x'.repeat(2_000)}`, '/'],
  ])('to %j leads to no other host', async (to, path) => {
    const { account } = await newPerson('owner');
    expect(await signIn(account, to)).toBe(`${service.url}/console${path}`);
  });

  test('is refused for an account that is no member, without a session', async () => {
    const { account } = await newPerson(null);
    expect(problemOf(await signIn(account))).toBe('no_member');
    expect(browser.cookie(service.url, 'sandkeep_session')).toBeUndefined();
    expect(await isKnown(account)).toBe(false);
  });

  test.each([[false], [undefined], ['true'], ['false'], [1]])(
    'never links an address whose email_verified is %j',
    async (verified) => {
      const { account, memberId } = await newPerson('owner', { email_verified: verified });
      expect(problemOf(await signIn(account))).toBe('unverified_email');
      const { rows } = await service.ctx.pool.query('select person_id from org_members where id = $1', [
        memberId,
      ]);
      expect(rows).toEqual([{ person_id: null }]);
    },
  );

  test('belongs to the account, not to the address: another account with it gets nothing', async () => {
    const { account, email, memberId } = await newPerson('owner');
    await signIn(account);
    await provider.setAccount('thief', { email, email_verified: true });
    browser = new HttpBrowser();
    expect(problemOf(await signIn('thief'))).toBe('no_member');
    // The account keeps its membership under another address, also a foreign one.
    await provider.setAccount(account, { email: 'moved@example.com', email_verified: false });
    browser = new HttpBrowser();
    expect(await signIn(account)).toBe(`${service.url}/console/`);
    expect((await session()).body.member.id).toBe(memberId);
    await unlinkMember(service.ctx.pool, client.org.id, email, operator('test'));
    await until(
      async () => (await session()).body.error?.code as unknown,
      (code) => code === 'invalid_session',
    );
    browser = new HttpBrowser();
    expect(await signIn('thief')).toBe(`${service.url}/console/`);
  });

  test('revives no session of the account from before the member was unlinked', async () => {
    const { account, email, memberId } = await newPerson('owner');
    await signIn(account);
    const before = await session();
    await unlinkMember(service.ctx.pool, client.org.id, email, operator('test'));
    browser = new HttpBrowser();
    expect(await signIn(account)).toBe(`${service.url}/console/`);
    expect((await session()).body.member.id).toBe(memberId);
    await until(
      async () => (await before.fetch('/v1/me/org')).status,
      (status) => status === 401,
    );
    const { rows } = await service.ctx.pool.query('select from console_sessions where member_id = $1', [
      memberId,
    ]);
    expect(rows.length).toBe(1);
  });

  test('that the person cancels is explained', async () => {
    expect(problemOf(await signIn('nobody'))).toBe('cancelled');
  });
});

describe('an answer of the provider', () => {
  test('is used once: neither its code nor its state works again', async () => {
    const { account } = await newPerson('owner');
    const callback = await authorize(account);
    const begun = browser.cookie(service.url, 'sandkeep_sign_in')!;
    expect((await browser.request(callback.href)).headers.get('location')).toBe(`${service.url}/console/`);
    expect(browser.cookie(service.url, 'sandkeep_sign_in')).toBeUndefined();
    const again = await browser.request(callback.href);
    expect(problemOf(again.headers.get('location')!)).toBe('expired');
    browser.setCookie(service.url, 'sandkeep_sign_in', begun);
    const kept = await browser.request(callback.href);
    expect(problemOf(kept.headers.get('location')!)).toBe('provider');
    // The provider has revoked what it issued for the code; the session here stays.
    expect((await session()).body.member).not.toBeUndefined();
  });

  test('is refused in a browser that has not begun the sign-in', async () => {
    const { account } = await newPerson('owner');
    const callback = await authorize(account);
    const victim = new HttpBrowser();
    const answer = await victim.request(callback.href);
    expect(problemOf(answer.headers.get('location')!)).toBe('expired');
    // Nor in one that has begun another.
    await victim.request(`${service.url}/console/sign-in/provider`);
    const mixed = await victim.request(callback.href);
    expect(problemOf(mixed.headers.get('location')!)).toBe('expired');
    expect(victim.cookie(service.url, 'sandkeep_session')).toBeUndefined();
  });

  test.each([
    ['another state', (url: URL) => url.searchParams.set('state', 'x'.repeat(43)), 'expired'],
    ['no state', (url: URL) => url.searchParams.delete('state'), 'expired'],
    ['another code', (url: URL) => url.searchParams.set('code', 'x'.repeat(43)), 'provider'],
    ['no code', (url: URL) => url.searchParams.delete('code'), 'provider'],
    ['another issuer', (url: URL) => url.searchParams.set('iss', 'https://other.example'), 'provider'],
    ['no issuer', (url: URL) => url.searchParams.delete('iss'), 'provider'],
    ['two codes', (url: URL) => url.searchParams.append('code', 'x'), 'provider'],
  ])('with %s is refused', async (_, change, problem) => {
    const { account } = await newPerson('owner');
    const callback = await authorize(account);
    change(callback);
    const answer = await browser.request(callback.href);
    expect(problemOf(answer.headers.get('location')!)).toBe(problem);
    expect(browser.cookie(service.url, 'sandkeep_session')).toBeUndefined();
  });

  test('that comes after ten minutes is refused', async () => {
    const { account } = await newPerson('owner');
    const callback = await authorize(account);
    const [secret, at, ...rest] = browser.cookie(service.url, 'sandkeep_sign_in')!.split('.');
    browser.setCookie(service.url, 'sandkeep_sign_in', [secret, Number(at) - 600_001, ...rest].join('.'));
    const answer = await browser.request(callback.href);
    expect(problemOf(answer.headers.get('location')!)).toBe('expired');
  });

  test('never adopts a session that the browser brings', async () => {
    const { account } = await newPerson('owner');
    const given = `skm_${'A'.repeat(43)}`;
    browser.setCookie(service.url, 'sandkeep_session', given);
    await signIn(account);
    expect(browser.cookie(service.url, 'sandkeep_session')).toMatch(/^skm_/);
    expect(browser.cookie(service.url, 'sandkeep_session')).not.toBe(given);
  });
});

describe('an invitation', () => {
  async function invite(email: string): Promise<string> {
    const { body } = await client.post('/v1/invitations', { email, role: 'developer' });
    return new URL(body.link).hash.slice(1);
  }
  const accept = async (account: string, invitation: string) => {
    browser = new HttpBrowser();
    const callback = await authorize(account, '/', invitation);
    return (await browser.request(callback.href)).headers.get('location')!;
  };

  test('makes the account with the verified address a member, once', async () => {
    const { account, email } = await newPerson(null);
    const invitation = await invite(email);
    const stranger = await newPerson(null);
    expect(problemOf(await accept(stranger.account, invitation))).toBe('invitation');
    expect(await isKnown(stranger.account)).toBe(false);
    const unverified = await newPerson(null, { email, email_verified: false });
    expect(problemOf(await accept(unverified.account, invitation))).toBe('unverified_email');
    expect(await accept(account, invitation)).toBe(`${service.url}/console/`);
    expect((await session()).body).toMatchObject({
      organization: client.org,
      member: { email, role: 'developer', display_name: 'Ada' },
    });
    expect(problemOf(await accept(account, invitation))).toBe('invitation');
    expect(problemOf(await accept(account, `ski_${'A'.repeat(43)}`))).toBe('invitation');
  });

  test('leaves a member whose address has changed as it is', async () => {
    const { account, email, memberId } = await newPerson('owner');
    await signIn(account);
    const moved = `moved.${email.toLowerCase()}`;
    await provider.setAccount(account, { email: moved, email_verified: true });
    expect(await accept(account, await invite(moved))).toBe(`${service.url}/console/`);
    expect((await session()).body.member).toMatchObject({ id: memberId, role: 'owner', email });
  });

  test('needs the account: the link alone opens nothing', async () => {
    const { email } = await newPerson(null);
    const answer = await postLink(service.url, await invite(email));
    expect(answer.status).toBe(401);
  });
});

describe('a person of several organizations', () => {
  test('switches between them, each time with a new token and the same end', async () => {
    const { account, email } = await newPerson('owner');
    const other = await service.newOrg();
    await addMember(
      service.ctx.pool,
      other.org.id,
      { email, role: 'viewer', displayName: null },
      operator('test'),
    );
    await signIn(account);
    const first = await session();
    expect(first.body.organizations.map(({ id }: any) => id).toSorted()).toEqual(
      [client.org.id, other.org.id].toSorted(),
    );
    const [from, to] = first.body.organization.id === client.org.id ? [client, other] : [other, client];
    const move = (id: string, headers: Record<string, string> = {}) =>
      first.fetch('/console/session/organization', {
        method: 'POST',
        headers,
        body: JSON.stringify({ organization_id: id }),
      });
    expect((await move(to.org.id, { 'x-csrf-token': '' })).status).toBe(403);
    const foreign = await service.newOrg();
    expect((await move(foreign.org.id)).status).toBe(404);
    const moved = await move(to.org.id);
    expect(moved.status).toBe(200);
    const body: any = await moved.json();
    expect(body).toMatchObject({ organization: to.org, expires_at: first.body.expires_at });
    const [cookie] = moved.headers.getSetCookie()[0]!.split(';');
    expect(cookie).not.toBe(first.cookie);
    expect((await first.fetch('/v1/me/org')).status).toBe(401);
    const second = sessionAt(service.url, { cookie: cookie!, csrf: body.csrf_token, expiresAt: '' });
    expect(await (await second.fetch('/v1/me/org')).json()).toMatchObject(to.org);
    // The next sign-in opens the organization of this one.
    browser = new HttpBrowser();
    await signIn(account);
    expect((await session()).body.organization).toEqual(to.org);
    const { body: ended } = await from.get('/v1/events', { event_type: 'member_session_ended' });
    expect(ended.data).toMatchObject([{ payload: { reason: 'switched' } }]);
    const { body: opened } = await to.get('/v1/events', { event_type: 'member_session_opened' });
    expect(opened.data.map(({ payload }: any) => payload.method)).toEqual(['provider', 'switch']);
  });
});

describe('groups of the provider', () => {
  const memberOf = async (id: string) => {
    const { rows } = await service.ctx.pool.query<{ role: string }>(
      'select role from org_members where org_id = $1',
      [id],
    );
    return rows.map(({ role }) => role);
  };
  const useRules = () => {
    provider.settings.groupRules = RULES.map((rule) => ({ ...rule, org: client.org.slug }));
  };
  const signInWith = async (
    { account, email }: { account: string; email: string },
    groups: readonly string[],
  ) => {
    await provider.setAccount(account, { email, email_verified: true, groups });
    browser = new HttpBrowser();
    return signIn(account);
  };

  test('give, change and take a membership at each sign-in', async () => {
    useRules();
    const person = await newPerson(null);
    await signInWith(person, ['ml', 'platform', 'other']);
    expect([(await session()).body.member.role, await memberOf(client.org.id)]).toEqual(['admin', ['admin']]);
    await signInWith(person, ['ml']);
    expect(await memberOf(client.org.id)).toEqual(['developer']);
    const open = await session();
    expect(problemOf(await signInWith(person, []))).toBe('no_member');
    expect(await memberOf(client.org.id)).toEqual([]);
    expect((await open.fetch('/v1/me/org')).status).toBe(401);
    const { body } = await client.get('/v1/events', { category: 'member', actor_kind: 'system', limit: 100 });
    expect(body.data.map(({ event_type, actor }: any) => [event_type, actor.code])).toEqual([
      ['member_removed', 'sign_in'],
      ['member_changed', 'sign_in'],
      ['member_added', 'sign_in'],
    ]);
  });

  test('keep the labels that an administrator set where the new role can have labels', async () => {
    useRules();
    const person = await newPerson(null);
    const accessOf = async () => {
      const { body } = await client.get('/v1/members');
      return body.data.map(({ role, labels }: any) => [role, labels]);
    };
    await signInWith(person, ['ml']);
    const { id } = (await session()).body.member;
    expect((await client.patch(`/v1/members/${id}`, { labels: { team: 'ml' } })).status).toBe(200);
    await signInWith(person, ['readers']);
    expect(await accessOf()).toEqual([['viewer', { team: 'ml' }]]);
    await signInWith(person, ['platform']);
    expect(await accessOf()).toEqual([['admin', {}]]);
  });

  test('take a membership whose rule was removed, also the last rule', async () => {
    useRules();
    const person = await newPerson(null);
    await signInWith(person, ['ml']);
    expect(await memberOf(client.org.id)).toEqual(['developer']);
    provider.settings.groupRules = [];
    expect(problemOf(await signInWith(person, ['ml']))).toBe('no_member');
    expect(await memberOf(client.org.id)).toEqual([]);
  });

  test('leave a membership that was given by name, and give none by an unverified address', async () => {
    useRules();
    const named = await newPerson('developer', { groups: ['platform'] });
    await signIn(named.account);
    expect(await memberOf(client.org.id)).toEqual(['developer']);
    browser = new HttpBrowser();
    const unverified = await newPerson(null, { groups: ['platform'], email_verified: false });
    expect(problemOf(await signIn(unverified.account))).toBe('unverified_email');
    expect(await memberOf(client.org.id)).toEqual(['developer']);
  });
});

describe('a sign-out', () => {
  test('leads to the provider, whose sign-out ends the other sessions by the back channel', async () => {
    const { account } = await newPerson('owner');
    await signIn(account);
    const first = await session();
    // The provider remembers the person, so a second sign-in of the browser asks for nothing.
    await signIn(account);
    const second = await session();
    const answer = await second.fetch('/console/session', { method: 'DELETE' });
    expect(answer.status).toBe(200);
    const { logout_url: at } = (await answer.json()) as { logout_url: string };
    expect((await second.fetch('/v1/me/org')).status).toBe(401);
    expect((await first.fetch('/v1/me/org')).status).toBe(200);
    const url = new URL(at);
    expect([url.origin, url.searchParams.get('post_logout_redirect_uri')]).toEqual([
      provider.settings.issuer,
      `${service.url}/console/sign-in`,
    ]);
    expect(url.searchParams.get('id_token_hint')).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/);
    const page = await browser.request(at);
    const xsrf = /name="xsrf" value="([^"]+)"/.exec(await page.text())![1]!;
    const confirmed = await browser.submit(`${provider.settings.issuer}/session/end/confirm`, {
      xsrf,
      logout: 'yes',
    });
    expect(confirmed.headers.get('location')).toBe(`${service.url}/console/sign-in`);
    await until(
      () => statusOf(first),
      (status) => status === 401,
    );
    const { body } = await client.get('/v1/events', { event_type: 'member_session_ended' });
    expect(body.data.map(({ payload }: any) => payload.reason)).toEqual(['provider', 'signed_out']);
  });
});
