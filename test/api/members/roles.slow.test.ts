import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROLE_NAMES, type Role } from '../../../src/access/roles.js';
import { SCOPES, type RouteScope, type Scope } from '../../../src/access/scopes.js';
import type { ConsoleSession } from '../../support/console.js';
import { newMember, signInMember } from '../../support/members.js';
import { operations } from '../../support/openapi.js';
import { makeFixture, OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import { snapshot } from '../../support/org-snapshot.js';
import { startTestService, type TestService } from '../../support/service.js';

/** Every scope that a role satisfies, written out: the oracle of this file. Ids of roles are those of docs/roles.md. */
const EVERYTHING: readonly Scope[] = SCOPES;
const SANDBOXES: readonly Scope[] = ['sandboxes:read', 'sandboxes:write', 'sandboxes:exec'];
const MAY: Record<Role, readonly Scope[]> = {
  owner: EVERYTHING,
  admin: EVERYTHING,
  developer: [...SANDBOXES, 'volumes:read', 'volumes:write'],
  member: [...SANDBOXES, 'volumes:read', 'volumes:write'],
  viewer: ['sandboxes:read', 'volumes:read'],
  finance: ['billing:read'],
  auditor: ['events:read'],
};
/** With labels, everything that no label separates is closed. */
const NARROWED: Partial<Record<Role, readonly Scope[]>> = {
  developer: SANDBOXES,
  member: SANDBOXES,
  viewer: ['sandboxes:read'],
};

/** Every route of the API, by the document: http/authorization.test.ts compares it with the routes of the service. */
const ROUTES = operations.map(({ method, path, operation }) => ({
  method,
  pattern: path,
  id: operation.operationId,
  scope: (operation['x-required-scope'] ?? 'any') as RouteScope,
}));
/** Its tools are requests with a key. */
const BY_KEY_ALONE = new Set(['call_mcp']);

let service: TestService;
let owner: Fixture;
const sessions = new Map<string, ConsoleSession>();

beforeAll(async () => {
  service = await startTestService();
  owner = await makeFixture(service);
  const { id } = owner.client.org;
  for (const role of ROLE_NAMES) {
    sessions.set(role, await signInMember(service, id, await newMember(service, id, role)));
    if (!(role in NARROWED)) continue;
    const narrowed = await newMember(service, id, role, { team: 'other' });
    sessions.set(`${role} with labels`, await signInMember(service, id, narrowed));
  }
});
afterAll(() => service.close());

async function ask(by: string, { id, method }: (typeof ROUTES)[number]) {
  const { path, query, body, headers } = OPERATIONS[id]!(owner);
  const search = query ? `?${new URLSearchParams(query).toString()}` : '';
  const answer = await sessions.get(by)!.fetch(path + search, {
    method,
    headers: headers ?? {},
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (answer.headers.get('content-type')?.startsWith('application/json') !== true) {
    await answer.body?.cancel();
    return { status: answer.status, error: undefined };
  }
  const { error } = (await answer.json()) as {
    error?: { code: string; message: string; details: Record<string, unknown> | null };
  };
  return { status: answer.status, error };
}

const CALLERS = [
  ...ROLE_NAMES.map((role) => ({ caller: role as string, role, may: MAY[role] })),
  ...ROLE_NAMES.flatMap((role) => {
    const may = NARROWED[role];
    return may ? [{ caller: `${role} with labels`, role, may }] : [];
  }),
];

test('every role has a row in the table of this file, and every operation a request', () => {
  expect(Object.keys(MAY)).toEqual(ROLE_NAMES);
  expect(ROUTES.map(({ id }) => id).toSorted()).toEqual(Object.keys(OPERATIONS).toSorted());
});

describe.each(CALLERS)('$caller', ({ caller, role, may }) => {
  const isOpen = ({ scope }: (typeof ROUTES)[number]) => scope === 'any' || may.includes(scope);

  test('is refused every operation outside the role, and changes nothing', async () => {
    const before = await snapshot(service, owner.client.org.id);
    for (const route of ROUTES.filter((each) => !isOpen(each))) {
      const { status, error } = await ask(caller, route);
      expect([route.id, status, error?.code]).toEqual([route.id, 403, 'insufficient_scope']);
      expect(error?.message).toBe(`your role "${role}" does not have the scope ${route.scope}`);
      expect(error?.details).toMatchObject({ required_scope: route.scope });
    }
    expect(await snapshot(service, owner.client.org.id)).toEqual(before);
  });

  test('is let in to every operation of the role that reads', async () => {
    for (const route of ROUTES.filter((each) => isOpen(each) && each.method === 'GET')) {
      const { status, error } = await ask(caller, route);
      expect([route.id, status === 401, error?.code === 'insufficient_scope']).toEqual([
        route.id,
        false,
        false,
      ]);
    }
  });
});

/** Last, because they change what the tests before compare. */
describe.each(CALLERS)('$caller', ({ caller, may }) => {
  test('is let in to every operation of the role that writes', async () => {
    for (const route of ROUTES) {
      if (route.method === 'GET' || BY_KEY_ALONE.has(route.id)) continue;
      if (route.scope !== 'any' && !may.includes(route.scope)) continue;
      const { status, error } = await ask(caller, route);
      expect([route.id, status === 401, error?.code === 'insufficient_scope']).toEqual([
        route.id,
        false,
        false,
      ]);
    }
  });
});
