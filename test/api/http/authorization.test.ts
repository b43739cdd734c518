import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { makeKey } from '../../../src/access/key-secret.js';
import { documentScope } from '../../../src/access/required-scope.js';
import { covers, SCOPES, type RouteScope } from '../../../src/access/scopes.js';
import { operator } from '../../../src/audit/events/actor.js';
import type { App } from '../../../src/http/route.js';
import { createKey } from '../../../src/keys/create.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { makeFixture, OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import { snapshot } from '../../support/org-snapshot.js';
import { operations } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';

/**
 * Checks every kind of key on every operation of openapi.json, by the scope that the document names. Ids of other
 * organizations are in isolation.test.ts; both fail when an operation is not classified.
 */
const ROUTES = operations.map(({ method, path, operation }) => {
  const scope = (operation['x-required-scope'] ?? 'any') as RouteScope;
  return { method, pattern: path, id: operation.operationId, scope };
});

/**
 * Operations that a key narrowed to labels may call and that name no sandbox. keys/access.test.ts covers their results.
 */
const NARROWED_BY_THEMSELVES = new Set([
  'list_sandboxes',
  'create_sandbox',
  'list_snapshots',
  'import_snapshot',
  'list_snapshot_candidates',
  'list_snapshot_operations',
  'create_template',
  'list_templates',
  'list_fork_operations',
]);

/** Routes without authentication, beside the files of the API reference. */
const OPEN = ['GET /', 'GET /healthz', 'GET /openapi.json', 'GET /readyz'];
/** The routes of the console, which are no part of the API: test/api/console. */
const CONSOLE = [
  'DELETE /console/session',
  'GET /console',
  'GET /console/*',
  'DELETE /console/session/passkeys/:passkey_id',
  'GET /console/device/codes/:user_code',
  'GET /console/session',
  'GET /console/session/passkeys',
  'PATCH /console/session/passkeys/:passkey_id',
  'GET /console/sign-in/options',
  'POST /console/device/authorization',
  'POST /console/device/codes/:user_code',
  'POST /console/device/token',
  'POST /console/session',
  'POST /console/session/link',
  'POST /console/session/organization',
  'POST /console/session/passkey',
  'POST /console/session/passkey/options',
  'POST /console/session/passkeys',
  'POST /console/session/passkeys/options',
];
/** For other processes of the service, whose seal they need: test/api/ports/tunnel.test.ts. */
const PEERS = ['GET /internal/orgs/:org_id/sandboxes/:sandbox_id/ports/:port'];

let service: TestService;
/** Every registered method and path, documented or not, with authentication or not. */
const registered: string[] = [];
let owner: Fixture;
const WITHOUT_KEY = { header: 'Authorization', expected: 'Bearer <API key>' };

let bad: Record<string, string | null>;
/** Keys that a test of each operation shares. */
let shared: { elsewhere: string; narrowed: string; without: Map<RouteScope, string> };

async function keyWith(access: Partial<Access>, name = 'tried'): Promise<{ id: string; key: string }> {
  return createKey(service.ctx.pool, owner.client.org.id, name, operator('test'), {
    ...FULL_ACCESS,
    ...access,
  });
}

function watchRoutes(message: unknown): void {
  const { fastify } = message as { fastify: App };
  fastify.addHook('onRoute', ({ method, url }) => {
    registered.push(...[method].flat().map((name) => `${name} ${url}`));
  });
}

beforeAll(async () => {
  subscribe('fastify.initialization', watchRoutes);
  service = await startTestService();
  unsubscribe('fastify.initialization', watchRoutes);
  owner = await makeFixture(service);
  const [revoked, expired, replaced] = [await keyWith({}), await keyWith({}), await keyWith({})];
  await revokeKey(service.ctx.pool, revoked.id, operator('test'));
  await service.ctx.pool.query(
    'update api_keys set expires_at = now(), expiry_recorded = true where id = $1',
    [expired.id],
  );
  await owner.client.post(`/v1/keys/${replaced.id}/rotate`, { overlap_secs: 0 });
  bad = {
    none: null,
    empty: '',
    'not a key': 'x',
    'cut off': owner.client.key.slice(0, -1),
    'with a wrong checksum': 'skp_' + 'A'.repeat(38),
    'with more after it': owner.client.key + 'A',
    unknown: makeKey(),
    revoked: revoked.key,
    expired: expired.key,
    replaced: replaced.key,
  };
  const without = new Map<RouteScope, string>();
  for (const { scope } of ROUTES) {
    if (scope === 'any' || without.has(scope)) continue;
    without.set(scope, (await keyWith({ scopes: SCOPES.filter((held) => !covers([held], scope)) })).key);
  }
  const { key: elsewhere } = await keyWith({ cidrs: ['192.0.2.0/24', '2001:db8::/32'] });
  const { key: narrowed } = await keyWith({
    scopes: ['sandboxes:write', 'sandboxes:exec'],
    labels: { team: 'other' },
  });
  shared = { elsewhere, narrowed, without };
});
afterAll(() => service.close());

async function ask(id: string, key: string | null) {
  const { path, absent: _, refers: __, isWhole: ___, makesOwn: ____, ...request } = OPERATIONS[id]!(owner);
  const route = ROUTES.find((candidate) => candidate.id === id)!;
  return owner.client.request(route.method, path, { ...request, key });
}

/** Checks that `work` changes nothing of the owner. */
async function unchanged(work: () => Promise<void>): Promise<void> {
  const before = await snapshot(service, owner.client.org.id);
  await work();
  expect(await snapshot(service, owner.client.org.id)).toEqual(before);
}

test('the comparison sees a row that is new, and one that is changed', async () => {
  const before = await snapshot(service, owner.client.org.id);
  const { id } = await keyWith({});
  const made = await snapshot(service, owner.client.org.id);
  expect(made).not.toEqual(before);
  await service.ctx.pool.query(`update api_keys set name = 'other' where id = $1`, [id]);
  expect(await snapshot(service, owner.client.org.id)).not.toEqual(made);
});

test('every operation is classified, and names its scope', () => {
  expect(ROUTES.map(({ id }) => id).toSorted()).toEqual(Object.keys(OPERATIONS).toSorted());
  for (const { id, scope } of ROUTES) {
    expect([id, scope === 'any' || (SCOPES as readonly string[]).includes(scope)]).toEqual([id, true]);
  }
  // Opening a route to every key takes an edit of this line.
  // Each tool of MCP is checked by the route that it uses: test/api/mcp.
  expect(ROUTES.filter(({ scope }) => scope === 'any').map(({ id }) => id)).toEqual([
    'get_org',
    'list_tokens',
    'create_token',
    'revoke_token',
    'call_mcp',
  ]);
});

/** `fetch` sends no TRACE. */
function statusOf(method: string, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(service.url + path, { method }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    request.on('error', reject).end();
  });
}

test('every route appears in the document', async () => {
  const shown = new Set(ROUTES.map(({ method, pattern }) => `${method} ${pattern}`));
  const others: string[] = [];
  for (const route of registered) {
    const [method, url] = route.split(' ') as [string, string];
    const pattern = url.replaceAll(/:(\w+)/g, '{$1}');
    if (shown.delete(`${method} ${pattern}`) || url.startsWith('/docs')) continue;
    // Fastify adds a HEAD route to each GET route.
    if (method === 'HEAD' && registered.includes(`GET ${url}`)) continue;
    if ((await statusOf(method, url.replaceAll(/:\w+|\*/g, 'x'))) !== 405) others.push(route);
  }
  expect([...shown]).toEqual([]);
  expect(others.toSorted()).toEqual([...CONSOLE, ...OPEN, ...PEERS].toSorted());
});

test('a route that names no scope fails to register', () => {
  for (const schema of [undefined, {}, { querystring: {} }]) {
    expect(() => documentScope(schema, '/v1/new')).toThrow('the route /v1/new names no scope');
  }
});

test('only operations that read need a scope that reads', () => {
  for (const { id, method, scope } of ROUTES) {
    if (scope === 'any' || scope === 'org:admin' || scope === 'sandboxes:exec') continue;
    const reads = method === 'GET';
    expect([id, scope.endsWith(':read')]).toEqual([id, reads]);
  }
});

describe.each(ROUTES.map((route) => [`${route.method} ${route.pattern}`, route] as const))(
  '%s',
  (_, { id, scope, pattern }) => {
    test('answers 401 alike for every invalid key, and names the missing header without a key', async () => {
      await unchanged(async () => {
        const bodies = new Set<string>();
        for (const [name, key] of Object.entries(bad)) {
          const answer = await ask(id, key);
          expect([name, answer.status, answer.headers.get('www-authenticate')]).toEqual([
            name,
            401,
            'Bearer',
          ]);
          if (key) bodies.add(answer.text);
          else expect(answer.body.error.details).toEqual(WITHOUT_KEY);
        }
        expect([...bodies]).toEqual([
          '{"error":{"code":"invalid_api_key","message":"unauthorized","details":null}}',
        ]);
      });
    });

    test('answers 403 for a key of another network', async () => {
      await unchanged(async () => {
        const answer = await ask(id, shared.elsewhere);
        expect([answer.status, answer.body.error.code]).toEqual([403, 'address_not_allowed']);
      });
    });

    // A route that is open to every key has no scope to refuse.
    if (scope === 'any') return;

    test('answers 403 and names the scope for a key with every other scope', async () => {
      await unchanged(async () => {
        const answer = await ask(id, shared.without.get(scope)!);
        expect([answer.status, answer.body.error.code, answer.body.error.details.required_scope]).toEqual([
          403,
          'insufficient_scope',
          scope,
        ]);
        expect(answer.body.error.message).toContain(scope);
      });
    });

    if (NARROWED_BY_THEMSELVES.has(id)) return;

    test('touches nothing for a key narrowed to other labels', async () => {
      await unchanged(async () => {
        const answer = await ask(id, shared.narrowed);
        const { isWhole, absent: [absent] = ['sandbox_not_found'] } = OPERATIONS[id]!(owner);
        if (isWhole) {
          return expect([answer.status, answer.body.error.code]).toEqual([403, 'label_not_allowed']);
        }
        const narrowable = scope.startsWith('sandboxes:');
        if (narrowable)
          expect(pattern).toMatch(/\{(sandbox_id|name)\}|^\/v1\/(snapshot|templates|fork-operations)/);
        expect([answer.status, answer.body.error.code]).toEqual(
          narrowable ? [404, absent] : [403, 'insufficient_scope'],
        );
      });
    });
  },
);
