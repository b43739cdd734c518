import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeFixture, OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import { snapshot } from '../../support/org-snapshot.js';
import type { Client } from '../../support/client.js';
import { operations } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';

/** A key is refused: keys/tokens.test.ts. */
const BY_MEMBER_ALONE = new Set(['create_token']);

let service: TestService;
let victim: Fixture;
let intruder: Client;

beforeAll(async () => {
  service = await startTestService();
  intruder = await service.newOrg();
  victim = await makeFixture(service);
});
afterAll(() => service.close());

test('every operation is classified', () => {
  expect(operations.map(({ operation }) => operation.operationId).toSorted()).toEqual(
    Object.keys(OPERATIONS).toSorted(),
  );
});

test.each(operations.map(({ method, path, operation }) => [method, path, operation.operationId] as const))(
  '%s %s shows and changes nothing of another organization',
  async (method, pattern, operationId) => {
    const before = await snapshot(service, victim.client.org.id);
    const { path, absent, refers, isWhole: _, makesOwn, ...request } = OPERATIONS[operationId]!(victim);
    const answer = await intruder.request(method, path, request);
    if ((pattern.includes('{') || refers) && !makesOwn) {
      const [code, message] = absent ?? ['sandbox_not_found', 'resource not found'];
      expect([answer.status, answer.body]).toEqual([404, { error: { code, message, details: null } }]);
    } else {
      expect(answer.status).toBe(BY_MEMBER_ALONE.has(operationId) ? 403 : 200);
    }
    for (const known of [
      victim.client.org.id,
      victim.sandbox.id,
      victim.volume.id,
      victim.event.id,
      'victim',
      'canary',
    ]) {
      expect(answer.text).not.toContain(known);
    }
    expect(await snapshot(service, victim.client.org.id)).toEqual(before);
  },
);

test.each([
  ['/v1/events/export', 'csv'],
  ['/v1/events/export', 'ocsf'],
  ['/v1/billing/usage/sandbox', 'csv'],
  ['/v1/billing/usage/storage', 'json'],
])('%s as %s shows nothing of another organization', async (path, format) => {
  const answer = await intruder.get(path, { format });
  expect(answer.status).toBe(200);
  for (const known of [
    victim.client.org.id,
    victim.sandbox.id,
    victim.volume.id,
    victim.event.id,
    'victim',
  ]) {
    expect(answer.text).not.toContain(known);
  }
});

test('filters with ids of another organization match nothing', async () => {
  for (const query of [
    { resource_id: victim.sandbox.id },
    { actor_id: victim.client.keyId },
    // A build of its own has started a sandbox.
    { event_type: 'sandbox_started', resource_id: victim.sandbox.id },
  ]) {
    expect((await intruder.get('/v1/events', query)).body.data).toEqual([]);
  }
  expect((await intruder.get('/v1/sandboxes', { labels: '{"team":"ml"}' })).body.data).toEqual([]);
  expect((await intruder.get('/v1/sandboxes', { name_prefix: 'victim' })).body.data).toEqual([]);
});
