import { afterAll, beforeAll, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { startTestService, type TestService } from '../../support/service.js';
import { capture, ended, fromSnapshot, startSmall } from '../../support/snapshots.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

test('a key that is narrowed to labels sees the snapshots with them, and makes such', async () => {
  const client = await service.newOrg();
  const own = await startSmall(client, 'own', { labels: { team: 'a' } });
  const foreign = await startSmall(client, 'foreign', { labels: { team: 'b' } });
  const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), {
    ...FULL_ACCESS,
    scopes: ['sandboxes:write'],
    labels: { team: 'a' },
  });
  const ask = async (method: string, path: string, body?: unknown) =>
    client.request(method, path, { key, ...(body === undefined ? {} : { body }) });
  const { id } = await capture(client, foreign, 'hidden', { labels: { team: 'b' } });
  const made = await ask('POST', '/v1/snapshots', { kind: 'disk', sandbox_id: own, name: 'shown' });
  expect((await ended(client, made.body.id))['result'].labels).toEqual({ team: 'a' });
  expect((await ask('GET', '/v1/snapshots')).body.data.map(({ name }: any) => name)).toEqual(['shown']);
  expect((await ask('GET', `/v1/snapshots/${id}`)).status).toBe(404);
  expect((await ask('DELETE', '/v1/snapshots/by-name/hidden')).status).toBe(404);
  const forced = await ask('POST', '/v1/snapshots', {
    kind: 'disk',
    sandbox_id: own,
    name: 'hidden',
    force: true,
  });
  expect([forced.status, forced.body.error?.code]).toEqual([409, 'snapshot_already_exists']);
  expect((await client.get(`/v1/snapshots/${id}`)).body.status).toBe('ready');
  const refused = await ask('POST', '/v1/snapshots', { kind: 'disk', sandbox_id: foreign, name: 'x' });
  expect([refused.status, refused.body.error.code]).toEqual([404, 'sandbox_not_found']);
  expect((await ask('POST', '/v1/sandboxes', fromSnapshot('x', id as string))).status).toBe(404);
  const candidates = await ask('GET', '/v1/sandboxes/snapshot-candidates');
  expect(candidates.body.data.map(({ name }: any) => name)).toEqual(['own']);
});

test('an operation has the name that the sandbox had at the request', async () => {
  const client = await service.newOrg();
  const id = await startSmall(client, 'before');
  await capture(client, id, 'kept');
  expect((await client.request('PATCH', `/v1/sandboxes/${id}`, { body: { name: 'after' } })).status).toBe(
    200,
  );
  const { body } = await client.get('/v1/snapshot-operations');
  expect(body.data).toMatchObject([{ name: 'kept', sandbox_id: id, sandbox_name: 'before' }]);
});

test('pages list snapshots, operations and candidates from the newest to the oldest', async () => {
  const client = await service.newOrg();
  for (const name of ['a', 'b', 'c']) await capture(client, await startSmall(client, name), `of-${name}`);
  for (const [path, prefix] of [
    ['/v1/snapshots', 'of-'],
    ['/v1/snapshot-operations', 'of-'],
    ['/v1/sandboxes/snapshot-candidates', ''],
  ] as const) {
    const names: string[] = [];
    for (let cursor: string | undefined, more = true; more;) {
      const { body } = await client.get(path, { limit: 2, ...(cursor ? { cursor } : {}) });
      names.push(...body.data.map(({ name }: { name: string }) => name));
      cursor = body.next_cursor;
      more = body.has_more;
    }
    expect(names).toEqual(['c', 'b', 'a'].map((name) => prefix + name));
  }
});
