import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { covers, SCOPES, type RouteScope } from '../../../src/access/scopes.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { signIn, type ConsoleSession } from '../../support/console.js';
import { operations } from '../../support/openapi.js';
import { localProvider } from '../../support/openid/provider.js';
import { makeFixture, OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import { snapshot } from '../../support/org-snapshot.js';
import { startTestService, type TestService } from '../../support/service.js';

const READS = SCOPES.filter((scope) => scope.endsWith(':read'));
/** Every route of the API, by the document: http/authorization.test.ts compares it with the routes of the service. */
const ROUTES = operations.map(({ method, path, operation }) => ({
  method,
  pattern: path,
  id: operation.operationId,
  scope: (operation['x-required-scope'] ?? 'any') as RouteScope,
}));
const CHANGES = ROUTES.filter(({ method }) => method !== 'GET');

let service: TestService;
let owner: Fixture;
let session: ConsoleSession;
let reader: ConsoleSession;
let stranger: ConsoleSession;

beforeAll(async () => {
  // No provider answers there.
  const provider = localProvider('http://127.0.0.1:1');
  service = await startTestService({ settings: { provider } });
  owner = await makeFixture(service);
  session = await signIn(service, owner.client.key);
  const { key } = await createKey(service.ctx.pool, owner.client.org.id, 'reader', operator('test'), {
    ...FULL_ACCESS,
    scopes: READS,
  });
  reader = await signIn(service, key);
  stranger = await signIn(service, (await service.newOrg()).key);
});
afterAll(() => service.close());

async function ask(
  by: ConsoleSession,
  { id, method }: (typeof ROUTES)[number],
  more: Record<string, string> = {},
): Promise<[number, string | undefined]> {
  const { path, query, body, headers } = OPERATIONS[id]!(owner);
  const search = query ? `?${new URLSearchParams(query).toString()}` : '';
  const answer = await by.fetch(path + search, {
    method,
    headers: { ...headers, ...more },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (answer.headers.get('content-type')?.startsWith('application/json') !== true) {
    await answer.body?.cancel();
    return [answer.status, undefined];
  }
  const { error } = (await answer.json()) as { error?: { code: string } };
  return [answer.status, error?.code];
}

async function unchanged(work: () => Promise<void>): Promise<void> {
  const before = await snapshot(service, owner.client.org.id);
  await work();
  expect(await snapshot(service, owner.client.org.id)).toEqual(before);
}

describe.each(CHANGES.map((route) => [`${route.method} ${route.pattern}`, route] as const))(
  'by cookie, %s',
  (_, route) => {
    test.each([
      ['without the token', { 'x-csrf-token': '' }],
      ['with another token', { 'x-csrf-token': 'A'.repeat(43) }],
    ])('is refused %s', async (__, headers) => {
      await unchanged(async () =>
        expect(await ask(session, route, headers)).toEqual([403, 'invalid_csrf_token']),
      );
    });

    test('is refused with the token of another session', async () => {
      const headers = { 'x-csrf-token': stranger.csrf };
      await unchanged(async () =>
        expect(await ask(session, route, headers)).toEqual([403, 'invalid_csrf_token']),
      );
    });

    test.each([
      [{ origin: 'https://evil.example' }],
      [{ origin: 'http://127.0.0.1:1' }],
      [{ origin: 'null' }],
      [{ 'sec-fetch-site': 'same-site' }],
    ])('is refused from %o', async (headers) => {
      await unchanged(async () =>
        expect(await ask(session, route, headers)).toEqual([403, 'origin_not_allowed']),
      );
    });
  },
);

describe.each(ROUTES.map((route) => [`${route.method} ${route.pattern}`, route] as const))(
  'by cookie, %s',
  (_, route) => {
    test('needs the scope that it needs by key', async () => {
      if (covers(READS, route.scope)) return;
      await unchanged(async () => {
        expect(await ask(reader, route)).toEqual([403, 'insufficient_scope']);
      });
    });

    test('touches nothing of another organization', async () => {
      if (!/\{/.test(route.pattern)) return;
      const { absent: [, absent] = [], makesOwn } = OPERATIONS[route.id]!(owner);
      await unchanged(async () => {
        const [status] = await ask(stranger, route);
        expect([status, absent]).toEqual([makesOwn ? 200 : 404, absent]);
      });
    });
  },
);

test('the sign-out needs the token', async () => {
  const { cookie, csrf } = await signIn(service, owner.client.key);
  const statusOf = async (headers: Record<string, string>) =>
    (await fetch(`${service.url}/console/session`, { method: 'DELETE', headers: { cookie, ...headers } }))
      .status;
  expect(await statusOf({})).toBe(403);
  expect(await statusOf({ 'x-csrf-token': csrf, origin: 'https://evil.example' })).toBe(403);
  expect(await statusOf({ 'x-csrf-token': csrf, origin: service.url })).toBe(204);
});

test('the read of a page of another origin is refused too', async () => {
  for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
    expect((await session.fetch('/v1/events', { headers })).status).toBe(403);
  }
  const own = { origin: service.url, 'sec-fetch-site': 'same-origin' };
  expect((await session.fetch('/v1/events', { headers: own })).status).toBe(200);
});

test.each([
  [403, { 'sec-fetch-site': 'cross-site' }],
  [403, { 'sec-fetch-site': 'same-site' }],
  [403, { origin: 'https://evil.example' }],
  // A link of the console, a bookmark, and a client that is no browser.
  [303, { 'sec-fetch-site': 'same-origin' }],
  [303, { 'sec-fetch-site': 'none' }],
  [303, {}],
])('a sign-in by the provider is answered %d when the browser sends %o', async (status, headers) => {
  const invitation = `ski_${'A'.repeat(43)}`;
  const answer = await fetch(`${service.url}/console/sign-in/provider?invitation=${invitation}`, {
    headers,
    redirect: 'manual',
  });
  expect(answer.status).toBe(status);
  expect(answer.headers.getSetCookie()).toEqual([]);
});
