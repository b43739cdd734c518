import { SignJWT } from 'jose';
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { SIGN_INS_UNDER_WAY } from '../../../src/console/provider-routes.js';
import { MAX_FETCHED_BYTES } from '../../../src/outbound/fetch.js';
import { deleteUsedLogoutTokens } from '../../../src/people/jobs.js';
import { addMember } from '../../../src/members/add.js';
import type { Client } from '../../support/client.js';
import { HttpBrowser } from '../../support/openid/browser.js';
import {
  json,
  metadataOf,
  startHostileIssuer,
  type HostileIssuer,
} from '../../support/openid/hostile-issuer.js';
import { localProvider, startServiceWith } from '../../support/openid/provider.js';
import { until } from '../../support/polling.js';
import { startForTest, type TestService } from '../../support/service.js';

const EVENT = { 'http://schemas.openid.net/event/backchannel-logout': {} };

let issuer: HostileIssuer;
let service: TestService;
let client: Client;
let browser: HttpBrowser;

beforeAll(async () => {
  issuer = await startHostileIssuer();
  service = await startServiceWith(localProvider(issuer.issuer), { worker: false });
});
afterAll(async () => {
  await service.close();
  await issuer.close();
});
beforeEach(async () => {
  client = await service.newOrg();
  browser = new HttpBrowser();
});

/** Undefined: the token lacks the claim. */
type Claims = Record<string, any>;

interface Begun {
  state: string;
  nonce: string;
}

async function begin(at: Pick<TestService, 'url'> = service, by = browser): Promise<Begun> {
  const answer = await by.request(`${at.url}/console/sign-in/provider`);
  const { searchParams } = new URL(answer.headers.get('location')!);
  return { state: searchParams.get('state')!, nonce: searchParams.get('nonce')! };
}

async function callBack(
  { state }: Begun,
  at: Pick<TestService, 'url'> = service,
  by = browser,
): Promise<Response> {
  const query = new URLSearchParams({ code: 'code', state, iss: issuer.issuer });
  return by.request(`${at.url}/console/sign-in/callback?${query.toString()}`);
}

async function finish(begun: Begun, at?: Pick<TestService, 'url'>): Promise<string> {
  return (await callBack(begun, at)).headers.get('location')!;
}

const problemOf = (place: string) => new URL(place).searchParams.get('problem');
const isSignedIn = () => browser.cookie(service.url, 'sandkeep_session') !== undefined;

function secondsFromNow(seconds: number): number {
  return Math.floor(Date.now() / 1_000) + seconds;
}

function claims({ nonce }: Pick<Begun, 'nonce'>, more: Claims = {}): Claims {
  return {
    iss: issuer.issuer,
    aud: 'sandkeep',
    sub: 'somebody',
    iat: secondsFromNow(0),
    exp: secondsFromNow(300),
    nonce,
    email: 'ada@example.com',
    email_verified: true,
    sid: 'session of the provider',
    ...more,
  };
}

const token = (idToken: string) => json({ access_token: 'access', token_type: 'Bearer', id_token: idToken });

async function newMember(email = 'ada@example.com'): Promise<void> {
  // One member of the address: the accounts of other tests are not in the way.
  await service.ctx.pool.query('update org_members set person_id = null, email = id || $1', [
    '@left.example',
  ]);
  await addMember(
    service.ctx.pool,
    client.org.id,
    { email, role: 'owner', displayName: null },
    operator('test'),
  );
}

test('an honest answer signs in', async () => {
  await newMember();
  const begun = await begin();
  issuer.answer('/token', token(await issuer.sign(claims(begun))));
  expect(await finish(begun)).toBe(`${service.url}/console/`);
  expect(isSignedIn()).toBe(true);
});

test('a sign-in behind a proxy that ends TLS gives the cookie that changes of the console use', async () => {
  await newMember();
  const settings = localProvider(issuer.issuer, { consoleUrl: 'https://sandkeep.example.com/console' });
  // No proxy is trusted: only the origin of a page says that the browser uses HTTPS, and a navigation has none.
  const proxied = await startForTest({ worker: false, beside: service, settings: { provider: settings } });
  const begun = await begin(proxied);
  issuer.answer('/token', token(await issuer.sign(claims(begun))));
  const answer = await callBack(begun, proxied);
  expect(answer.headers.getSetCookie()).toContainEqual(
    expect.stringMatching(/^__Host-sandkeep_session=skm_.*; Secure$/),
  );
  const read = await browser.request(`${proxied.url}/console/session`);
  const { csrf_token } = (await read.json()) as { csrf_token: string };
  const origin = proxied.url.replace('http:', 'https:');
  const changed = await browser.request(`${proxied.url}/console/session`, {
    method: 'DELETE',
    headers: { origin, 'x-csrf-token': csrf_token },
  });
  expect(changed.status).toBeLessThan(300);
});

describe('an ID token is refused', () => {
  beforeEach(() => newMember());

  test.each<[string, (begun: Begun) => Promise<string> | string]>([
    ['with a forged signature', async (begun) => issuer.forge(claims(begun))],
    [
      'whose claims were changed',
      async (begun) => {
        const [head, , signature] = (await issuer.sign(claims(begun))).split('.');
        const changed = Buffer.from(JSON.stringify(claims(begun, { sub: 'admin' }))).toString('base64url');
        return [head, changed, signature].join('.');
      },
    ],
    [
      'without a signature',
      (begun) => {
        const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
        return `${part({ alg: 'none' })}.${part(claims(begun))}.`;
      },
    ],
    [
      'signed with the secret of the client',
      async (begun) => {
        const secret = new TextEncoder().encode('a secret of the client at the provider');
        return new SignJWT(claims(begun)).setProtectedHeader({ alg: 'HS256' }).sign(secret);
      },
    ],
    ['for another client', async (begun) => issuer.sign(claims(begun, { aud: 'another' }))],
    ['for several clients', async (begun) => issuer.sign(claims(begun, { aud: ['sandkeep', 'another'] }))],
    ['of another issuer', async (begun) => issuer.sign(claims(begun, { iss: 'https://other.example' }))],
    ['of another sign-in', async (begun) => issuer.sign(claims({ ...begun, nonce: 'x'.repeat(43) }))],
    ['without a nonce', async (begun) => issuer.sign({ ...claims(begun), nonce: undefined })],
    ['that has expired', async (begun) => issuer.sign(claims(begun, { exp: secondsFromNow(-300) }))],
    ['without an expiry', async (begun) => issuer.sign({ ...claims(begun), exp: undefined })],
    ['without a subject', async (begun) => issuer.sign({ ...claims(begun), sub: undefined })],
    ['with a long subject', async (begun) => issuer.sign(claims(begun, { sub: 'x'.repeat(300) }))],
    ['with a control character in the subject', async (begun) => issuer.sign(claims(begun, { sub: 'a\0b' }))],
  ])('%s', async (_, make) => {
    const begun = await begin();
    issuer.answer('/token', token(await make(begun)));
    expect(problemOf(await finish(begun))).toBe('provider');
    expect(isSignedIn()).toBe(false);
  });

  test('when there is none', async () => {
    const begun = await begin();
    issuer.answer('/token', json({ access_token: 'access', token_type: 'Bearer' }));
    expect(problemOf(await finish(begun))).toBe('provider');
    expect(isSignedIn()).toBe(false);
  });
});

describe('userinfo', () => {
  const without = (begun: Begun) => ({ ...claims(begun), email: undefined, email_verified: undefined });

  test('gives the address that the ID token lacks', async () => {
    await newMember();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(without(begun))));
    issuer.answer('/userinfo', json({ sub: 'somebody', email: 'ada@example.com', email_verified: true }));
    expect(await finish(begun)).toBe(`${service.url}/console/`);
  });

  test('about another person is refused', async () => {
    await newMember();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(without(begun))));
    issuer.answer('/userinfo', json({ sub: 'another', email: 'ada@example.com', email_verified: true }));
    expect(problemOf(await finish(begun))).toBe('provider');
    expect(isSignedIn()).toBe(false);
  });

  const unsure = (begun: Begun) => claims(begun, { email_verified: undefined });

  test('that verifies the address of the ID token signs in', async () => {
    await newMember();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(unsure(begun))));
    issuer.answer('/userinfo', json({ sub: 'somebody', email: 'ada@example.com', email_verified: true }));
    expect(await finish(begun)).toBe(`${service.url}/console/`);
  });

  test('that verifies another address does not verify that of the ID token', async () => {
    await newMember();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(unsure(begun))));
    issuer.answer('/userinfo', json({ sub: 'somebody', email: 'other@example.com', email_verified: true }));
    expect(problemOf(await finish(begun))).toBe('no_member');
    expect(isSignedIn()).toBe(false);
  });

  test('gives the claim of --oidc-require that the ID token lacks', async () => {
    await newMember();
    const settings = localProvider(issuer.issuer, { required: { department: 'research' } });
    const strict = await startServiceWith(settings, { worker: false, beside: service });
    onTestFinished(() => strict.close());
    const begun = await begin(strict);
    issuer.answer('/token', token(await issuer.sign(claims(begun))));
    issuer.answer('/userinfo', json({ sub: 'somebody', department: 'research' }));
    expect(await finish(begun, strict)).toBe(`${strict.url}/console/`);
  });
});

test('a person of more than a thousand groups has the membership of the last one', async () => {
  const groups = Array.from({ length: 1_001 }, (_, index) => `group ${index}`);
  const settings = localProvider(issuer.issuer, {
    groupRules: [{ group: groups.at(-1)!, org: client.org.slug, role: 'viewer' }],
  });
  const grouped = await startServiceWith(settings, { worker: false, beside: service });
  onTestFinished(() => grouped.close());
  const begun = await begin(grouped);
  const person = { sub: 'in many groups', email: 'many@example.com', groups };
  issuer.answer('/token', token(await issuer.sign(claims(begun, person))));
  expect(await finish(begun, grouped)).toBe(`${grouped.url}/console/`);
});

test('a further sign-in of a busy address is asked to wait, and continues afterwards', async () => {
  const email = 'busy@example.com';
  await newMember(email);
  const settings = localProvider(issuer.issuer, { timeoutMs: 600_000 });
  const slow = await startServiceWith(settings, { worker: false, beside: service });
  onTestFinished(() => slow.close());
  const others = Array.from({ length: SIGN_INS_UNDER_WAY.each }, () => new HttpBrowser());
  const begun = await Promise.all(others.map((each) => begin(slow, each)));
  const last = await begin(slow);
  const held: ServerResponse[] = [];
  issuer.answer('/token', (_request, response) => void held.push(response));
  const waiting = begun.map((each, index) => callBack(each, slow, others[index]));
  await until(
    async () => Promise.resolve(held.length),
    (count) => count === others.length,
  );
  const refused = await callBack(last, slow);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
  for (const response of held) response.destroy();
  for (const answer of await Promise.all(waiting)) {
    expect(problemOf(answer.headers.get('location')!)).toBe('provider');
  }
  const person = { sub: 'busy', email };
  issuer.answer('/token', token(await issuer.sign(claims(last, person))));
  expect(await finish(last, slow)).toBe(`${slow.url}/console/`);
});

describe('a provider that', () => {
  test('never answers is given up in time', async () => {
    const begun = await begin();
    issuer.answer('/token', () => undefined);
    const started = performance.now();
    expect(problemOf(await finish(begun))).toBe('provider');
    expect(performance.now() - started).toBeLessThan(60_000);
  });

  test('answers without an end is cut off', async () => {
    const begun = await begin();
    let sent = 0;
    issuer.answer('/token', (_request, response) => {
      response.setHeader('content-type', 'application/json');
      const piece = Buffer.alloc(64 * 1_024, 'x');
      const write = () => {
        while (!response.destroyed && sent < 1_024 * 1_024 * 1_024) {
          sent += piece.length;
          if (response.write(piece)) continue;
          response.once('drain', write);
          return;
        }
      };
      write();
    });
    expect(problemOf(await finish(begun))).toBe('provider');
    // The rest is in the buffers of the connection.
    expect(sent).toBeLessThan(MAX_FETCHED_BYTES + 16 * 1_024 * 1_024);
  });

  test('redirects its answers is not followed', async () => {
    const begun = await begin();
    issuer.answer(
      '/token',
      (_request, response) => void response.writeHead(307, { location: '/elsewhere' }).end(),
    );
    expect(problemOf(await finish(begun))).toBe('provider');
    expect(issuer.asked).not.toContain('/elsewhere');
  });

  test('is down leads back to the sign-in page, and is asked again only after a while', async () => {
    const down = await startHostileIssuer();
    onTestFinished(() => down.close());
    down.answer(
      '/.well-known/openid-configuration',
      (_request, response) => void response.writeHead(503).end(),
    );
    const other = await startServiceWith(localProvider(down.issuer), { worker: false });
    onTestFinished(() => other.close());
    const places: (string | null)[] = [];
    for (let n = 0; n < 5; n += 1) {
      const answer = await fetch(`${other.url}/console/sign-in/provider`, { redirect: 'manual' });
      places.push(problemOf(answer.headers.get('location')!));
    }
    expect(places).toEqual(['provider', 'provider', 'provider', 'provider', 'provider']);
    expect(down.asked.length).toBeLessThanOrEqual(2);
    // Keys and links still sign in.
    const answer = await fetch(`${other.url}/console/sign-in/options`);
    expect(answer.status).toBe(200);
  });

  test.each<[string, (own: string) => Record<string, unknown>]>([
    ['calls itself by another name', (own) => ({ ...metadataOf(own), issuer: 'https://other.example' })],
    ['names no keys', (own) => ({ ...metadataOf(own), jwks_uri: undefined })],
    [
      'has its metadata at an address that is not allowed',
      (own) => ({ ...metadataOf(own), token_endpoint: 'http://192.0.2.1/token' }),
    ],
  ])('%s signs nobody in', async (_, metadata) => {
    const liar = await startHostileIssuer();
    onTestFinished(() => liar.close());
    liar.answer('/.well-known/openid-configuration', json(metadata(liar.issuer)));
    const other = await startServiceWith(localProvider(liar.issuer), { worker: false });
    onTestFinished(() => other.close());
    const own = new HttpBrowser();
    const first = await own.request(`${other.url}/console/sign-in/provider`);
    const at = new URL(first.headers.get('location')!);
    if (at.searchParams.has('problem')) {
      expect(at.searchParams.get('problem')).toBe('provider');
      return;
    }
    const query = new URLSearchParams({ code: 'x', state: at.searchParams.get('state')!, iss: liar.issuer });
    const answer = await own.request(`${other.url}/console/sign-in/callback?${query.toString()}`);
    expect(problemOf(answer.headers.get('location')!)).toBe('provider');
  });

  test('is at an address that is not public is refused without the permission of the operator', async () => {
    const settings = localProvider(issuer.issuer, { reach: { allow: [], http: true } });
    const other = await startServiceWith(settings, { worker: false });
    onTestFinished(() => other.close());
    const before = issuer.asked.length;
    const answer = await fetch(`${other.url}/console/sign-in/provider`, { redirect: 'manual' });
    expect(problemOf(answer.headers.get('location')!)).toBe('provider');
    expect(issuer.asked.length).toBe(before);
    expect(other.logs.join('\n')).toContain('is not a public address');
  });
});

describe('the options', () => {
  test.each([
    ['a domain', { domains: ['example.org'] }, 'not_allowed'],
    ['a claim', { required: { hd: 'example.com' } }, 'not_allowed'],
  ])('exclude a person by %s', async (_, more, problem) => {
    await newMember();
    const strict = await startServiceWith(localProvider(issuer.issuer, more), {
      worker: false,
      beside: service,
    });
    onTestFinished(() => strict.close());
    const begun = await begin(strict);
    issuer.answer('/token', token(await issuer.sign(claims(begun))));
    expect(problemOf(await finish(begun, strict))).toBe(problem);
  });
});

describe('a logout token', () => {
  const logout = async (logoutToken: string) =>
    fetch(`${service.url}/console/sign-in/back-channel-logout`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ logout_token: logoutToken }).toString(),
    });
  let names = 0;
  const logoutClaims = (more: Claims = {}): Claims => {
    names += 1;
    return {
      iss: issuer.issuer,
      aud: 'sandkeep',
      iat: secondsFromNow(0),
      exp: secondsFromNow(120),
      jti: `name ${names}`,
      sub: 'somebody',
      sid: 'session of the provider',
      events: EVENT,
      ...more,
    };
  };
  const statusOf = async () => (await browser.request(`${service.url}/v1/me/org`)).status;

  beforeEach(async () => {
    await newMember();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(claims(begun))));
    await finish(begun);
    expect(await statusOf()).toBe(200);
  });

  test.each<[string, Claims]>([
    ['the session', {}],
    ['the session alone', { sub: undefined }],
    ['the person', { sid: undefined }],
  ])('that names %s ends it, once', async (_, more) => {
    const logoutToken = await issuer.sign(logoutClaims(more), { typ: 'logout+jwt' });
    expect((await logout(logoutToken)).status).toBe(200);
    expect(await statusOf()).toBe(401);
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(claims(begun))));
    await finish(begun);
    expect((await logout(logoutToken)).status).toBe(400);
    expect(await statusOf()).toBe(200);
  });

  test.each<[string, () => Promise<string> | string]>([
    ['without a token', () => ''],
    ['that is no token', () => 'x'.repeat(1_000)],
    ['with a forged signature', async () => issuer.forge(logoutClaims())],
    ['for another client', async () => issuer.sign(logoutClaims({ aud: 'another' }))],
    ['of another issuer', async () => issuer.sign(logoutClaims({ iss: 'https://other.example' }))],
    [
      'that is old',
      async () => issuer.sign(logoutClaims({ iat: secondsFromNow(-3_600), exp: secondsFromNow(60) })),
    ],
    ['that has expired', async () => issuer.sign(logoutClaims({ exp: secondsFromNow(-120) }))],
    ['without a name', async () => issuer.sign(logoutClaims({ jti: undefined }))],
    ['without a time', async () => issuer.sign(logoutClaims({ iat: undefined }))],
    ['with a nonce', async () => issuer.sign(logoutClaims({ nonce: 'x' }))],
    ['without the event', async () => issuer.sign(logoutClaims({ events: {} }))],
    ['that names nobody', async () => issuer.sign(logoutClaims({ sub: undefined, sid: undefined }))],
    ['of another type', async () => issuer.sign(logoutClaims(), { typ: 'at+jwt' })],
  ])('%s is refused, and ends nothing', async (_, make) => {
    expect((await logout(await make())).status).toBe(400);
    expect(await statusOf()).toBe(200);
  });

  test('that names the person ends a session without a name at the provider too', async () => {
    browser = new HttpBrowser();
    const begun = await begin();
    issuer.answer('/token', token(await issuer.sign(claims(begun, { sid: undefined }))));
    await finish(begun);
    for (const more of [{ sub: 'another' }, { sub: undefined }]) {
      expect((await logout(await issuer.sign(logoutClaims(more)))).status).toBe(200);
      expect(await statusOf()).toBe(200);
    }
    expect((await logout(await issuer.sign(logoutClaims()))).status).toBe(200);
    expect(await statusOf()).toBe(401);
  });

  test('about another person or another session ends nothing', async () => {
    for (const more of [{ sub: 'another' }, { sid: 'another' }, { sub: 'another', sid: undefined }]) {
      expect((await logout(await issuer.sign(logoutClaims(more)))).status).toBe(200);
      expect(await statusOf()).toBe(200);
    }
  });

  test('is forgotten some time after its end', async () => {
    await logout(await issuer.sign(logoutClaims()));
    await service.ctx.pool.query('update logout_tokens set expires_at = now()');
    await deleteUsedLogoutTokens(service.ctx);
    expect((await service.ctx.pool.query('select from logout_tokens')).rowCount).toBe(0);
  });

  test('longer than 16 KiB is not read', async () => {
    expect((await logout('x'.repeat(20_000))).status).toBe(413);
  });
});
