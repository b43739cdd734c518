import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeKey } from '../../../src/access/key-secret.js';
import type { Client } from '../../support/client.js';
import { makeFixture, OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import { operations } from '../../support/openapi.js';
import { sentDuring } from '../../support/query-plans.js';
import { startTestService, type TestService } from '../../support/service.js';

/** The time of an answer tells nothing that its text hides, as far as the same statements take the same time. */

let service: TestService;
let victim: Fixture;
let intruder: Client;

beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { waitBudgetMs: 100 } });
  intruder = await service.newOrg();
  victim = await makeFixture(service);
});
afterAll(() => service.close());

/** The random end of an id; its beginning is a time, by which events are found. */
const END_OF_ID = /(?<=[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-)[0-9a-f]{4}-[0-9a-f]{12}/g;

/** The statements of a request, without the look-up of the key, which is cached at times. */
async function statementsOf(request: () => Promise<{ status: number }>): Promise<string[]> {
  const sent = await sentDuring(async () => expect((await request()).status).toBe(404));
  return sent.map(({ text }) => text).filter((text) => !text.includes('api_key_replaced_secrets'));
}

test.each(
  operations
    .filter(({ path }) => path.includes('{'))
    .map(({ method, path, operation }) => [method, path, operation.operationId] as const),
)('%s %s sends the same statements for a foreign object and for none', async (method, _, operationId) => {
  const { path, isWhole, makesOwn, ...request } = OPERATIONS[operationId]!(victim);
  if (makesOwn) return;
  const nowhere = path
    .replaceAll(END_OF_ID, () => randomUUID().slice(19))
    .replace(isWhole ? 'warm' : victim.sandbox.name, 'nobody');
  expect(nowhere).not.toBe(path);
  const [foreign, missing] = [
    await statementsOf(() => intruder.request(method, path, request)),
    await statementsOf(() => intruder.request(method, nowhere, request)),
  ];
  expect(foreign).toEqual(missing);
});

test('a wrong, revoked or expired key is refused after one statement, whether its prefix exists or not', async () => {
  const owner = await service.newOrg();
  const make = async (more: object): Promise<{ id: string; key: string }> =>
    (await owner.post('/v1/keys', { name: 'short', scopes: ['sandboxes:read'], ...more })).body;
  const revoked = await make({});
  await owner.delete(`/v1/keys/${revoked.id}`);
  const expired = await make({});
  await service.ctx.pool.query("update api_keys set expires_at = '2020-01-01' where id = $1", [expired.id]);
  const samePrefix = makeKey();
  await service.ctx.pool.query('update api_keys set prefix = $2 where id = $1', [
    owner.keyId,
    samePrefix.slice(0, 12),
  ]);
  for (const key of [makeKey(), samePrefix, revoked.key, expired.key]) {
    const sent = await sentDuring(async () => {
      const { status, body } = await owner.request('GET', '/v1/sandboxes', { key });
      expect([status, body.error.code]).toEqual([401, 'invalid_api_key']);
    });
    expect(sent.map(({ text }) => /from api_keys k/.test(text))).toEqual([true]);
  }
});
