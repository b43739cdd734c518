import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { buildApp } from '../../../src/app.js';
import { operator } from '../../../src/audit/events/actor.js';
import { LongEvents } from '../../../src/audit/events/long-events.js';
import { sleep } from '../../../src/lib/sleep.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { makeClient, type Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

async function eventsOf(id: string, event_type: string): Promise<any[]> {
  return (await client.get('/v1/events', { resource_id: id, event_type })).body.data;
}

describe('renaming a sandbox', () => {
  test('changes the given fields, by id and by name, and no others', async () => {
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('old-name', { slug: 'old-slug' }));
    const renamed = await client.patch(`/v1/sandboxes/${made.id}`, { name: 'New.Name_1' });
    expect([renamed.status, renamed.body]).toEqual([200, { ...made, name: 'New.Name_1' }]);
    expect((await client.get('/v1/sandboxes/by-name/old-name')).status).toBe(404);
    const again = await client.patch('/v1/sandboxes/by-name/New.Name_1', { slug: 'new-slug', name: null });
    expect([again.status, again.body]).toEqual([200, { ...made, name: 'New.Name_1', slug: 'new-slug' }]);
    expect((await client.get('/v1/sandboxes/by-name/New.Name_1')).body).toEqual(again.body);
    const events = await eventsOf(made.id, 'sandbox_renamed');
    expect(events.map(({ payload }) => payload)).toEqual([
      {
        sandbox_id: made.id,
        before: { name: 'New.Name_1', slug: 'old-slug' },
        after: { name: 'New.Name_1', slug: 'new-slug' },
      },
      {
        sandbox_id: made.id,
        before: { name: 'old-name', slug: 'old-slug' },
        after: { name: 'New.Name_1', slug: 'old-slug' },
      },
    ]);
    // The old name and slug are free again.
    const successor = await client.post('/v1/sandboxes', smallRequest('old-name', { slug: 'old-slug' }));
    expect(successor.status).toBe(200);
  });

  test('to its current name records no event', async () => {
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('same'));
    for (const body of [
      {},
      { name: null, slug: null },
      { name: 'same' },
      { slug: made.slug },
      { later: 1 },
    ]) {
      const answer = await client.patch(`/v1/sandboxes/${made.id}`, body);
      const { warnings, ...shown } = answer.body;
      expect([answer.status, shown]).toEqual([200, made]);
      expect(warnings?.map(({ field }: { field: string }) => field)).toEqual(
        'later' in body ? ['later'] : undefined,
      );
    }
    expect(await eventsOf(made.id, 'sandbox_renamed')).toEqual([]);
  });

  test('works in running, failed and stopped, and keeps the run', async () => {
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('lively'), {
      start: true,
      wait_for: 'running',
    });
    const renamed = await client.patch(`/v1/sandboxes/${made.id}`, { name: 'lively-2' });
    expect(renamed.body).toEqual({ ...made, name: 'lively-2' });
    await client.post('/v1/sandboxes/by-name/lively-2/stop', {});
    await untilStatus(client, made.id, 'stopped');
    expect((await client.patch(`/v1/sandboxes/${made.id}`, { name: 'lively-3' })).status).toBe(200);
  });

  test('to a taken name is refused', async () => {
    await client.post('/v1/sandboxes', smallRequest('taken', { slug: 'taken-slug' }));
    const { body: made } = await client.post('/v1/sandboxes', smallRequest('free'));
    const stranger = await service.newOrg();
    const { body: foreign } = await stranger.post('/v1/sandboxes', smallRequest('free'));
    for (const [by, id, body, details] of [
      [client, made.id, { name: 'taken' }, { name: 'taken' }],
      [client, made.id, { name: 'other', slug: 'taken-slug' }, { slug: 'taken-slug' }],
      [stranger, foreign.id, { slug: 'taken-slug' }, { slug: 'taken-slug' }],
    ] as const) {
      const { status, body: answer } = await by.patch(`/v1/sandboxes/${id}`, body);
      expect([status, answer.error.code, answer.error.details]).toEqual([
        409,
        'name_already_exists',
        details,
      ]);
    }
    // Names are unique within an organization only.
    expect((await stranger.patch(`/v1/sandboxes/${foreign.id}`, { name: 'taken' })).status).toBe(200);
    expect((await client.get(`/v1/sandboxes/${made.id}`)).body).toEqual(made);
  });

  test('succeeds exactly once for many sandboxes and one name concurrently', async () => {
    const made = await Promise.all(
      Array.from({ length: 10 }, (_, index) => client.post('/v1/sandboxes', smallRequest(`racer-${index}`))),
    );
    const answers = await Promise.all(
      made.map(({ body }) => client.patch(`/v1/sandboxes/${body.id}`, { name: 'winner' })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(9);
  });
});

describe('changing a volume', () => {
  test('keeps, sets and clears a cap; keeps, replaces and clears labels', async () => {
    const { body: made } = await client.post('/v1/volumes', { name: 'changing', labels: { a: '1' } });
    const path = `/v1/volumes/${made.id}`;
    const steps = [
      [{ capacity_gib: 3 }, 3, { a: '1' }],
      [{ labels: { b: '2', c: '' } }, 3, { b: '2', c: '' }],
      [{ labels: null }, 3, { b: '2', c: '' }],
      [{}, 3, { b: '2', c: '' }],
      [{ capacity_gib: null, labels: {} }, null, {}],
    ] as const;
    for (const [body, gib, labels] of steps) {
      const { status, body: answer } = await client.patch(path, body);
      expect([status, answer.capacity_bytes, answer.labels]).toEqual([
        200,
        gib === null ? null : gib * 1024 ** 3,
        labels,
      ]);
      expect((await client.get('/v1/volumes')).body).toContainEqual(answer);
    }
    const events = await eventsOf(made.id, 'volume_updated');
    expect(events.map(({ payload }) => [payload.before, payload.after])).toEqual([
      [
        { capacity_gib: 3, labels: { b: '2', c: '' } },
        { capacity_gib: null, labels: {} },
      ],
      [
        { capacity_gib: 3, labels: { a: '1' } },
        { capacity_gib: 3, labels: { b: '2', c: '' } },
      ],
      [
        { capacity_gib: null, labels: { a: '1' } },
        { capacity_gib: 3, labels: { a: '1' } },
      ],
    ]);
  });

  test('sets labels but no cap on the host volume', async () => {
    const { body: host } = await client.get('/v1/volumes/default');
    for (const capacity_gib of [1, null]) {
      const { status, body } = await client.patch(`/v1/volumes/${host.id}`, { capacity_gib });
      expect([status, body.error]).toEqual([
        409,
        { code: 'invalid_request', message: 'the host volume cannot be capped', details: null },
      ]);
    }
    const labelled = await client.patch(`/v1/volumes/${host.id}`, { labels: { team: 'ml' } });
    expect([labelled.status, labelled.body.labels]).toEqual([200, { team: 'ml' }]);
  });

  test('is refused during its deletion, and answers 404 after it', async () => {
    const { body: made } = await client.post('/v1/volumes', { name: 'leaving' });
    await client.delete(`/v1/volumes/${made.id}`);
    const refused = await client.patch(`/v1/volumes/${made.id}`, { capacity_gib: 1 });
    expect([refused.status, refused.body.error.code]).toEqual([409, 'invalid_state_transition']);
    expect((await client.patch(`/v1/volumes/${uuidv7()}`, {})).body.error.code).toBe('sandbox_not_found');
  });

  test('refuses by its field a cap above the storage of the organization', async () => {
    const { body: made } = await client.post('/v1/volumes', { name: 'too-large' });
    await setQuotas(service.ctx.pool, client.org.id, { max_total_storage_gib: 50 }, operator('test'));
    for (const answer of [
      await client.patch(`/v1/volumes/${made.id}`, { capacity_gib: 51 }),
      await client.post('/v1/volumes', { name: 'larger', capacity_gib: 51 }),
    ]) {
      expect([answer.status, answer.body.error.code, answer.body.error.details]).toEqual([
        400,
        'invalid_request',
        { field: 'capacity_gib' },
      ]);
    }
    await setQuotas(service.ctx.pool, client.org.id, { max_total_storage_gib: null }, operator('test'));
  });
});

describe('restoring a volume', () => {
  test('cancels a deletion, once', async () => {
    const { body: made } = await client.post('/v1/volumes', { name: 'restored', capacity_gib: 2 });
    const path = `/v1/volumes/${made.id}/restore`;
    expect((await client.post(path)).body).toEqual(made);
    await client.delete(`/v1/volumes/${made.id}`);
    const back = await client.post(path, {});
    expect([back.status, back.body]).toEqual([200, { ...made, updated_at: back.body.updated_at }]);
    expect((await client.post(path, {})).body).toEqual(back.body);
    expect(await eventsOf(made.id, 'volume_restored')).toHaveLength(1);
    const mounts = [{ type: 'named', name: 'restored', guest: '/data' }];
    expect((await client.post('/v1/sandboxes', smallRequest('mounts-it', { mounts }))).status).toBe(200);
  });

  test('is refused while another volume has its name', async () => {
    const { body: made } = await client.post('/v1/volumes', { name: 'contested' });
    await client.delete(`/v1/volumes/${made.id}`);
    const { body: other } = await client.post('/v1/volumes', { name: 'contested' });
    const refused = await client.post(`/v1/volumes/${made.id}/restore`);
    expect([refused.status, refused.body.error.code]).toEqual([409, 'volume_already_exists']);
    await client.delete(`/v1/volumes/${other.id}`);
    expect((await client.post(`/v1/volumes/${made.id}/restore`)).status).toBe(200);
  });

  test('races with the purge: one of them wins, and the volume stays or goes', async () => {
    const quick = await startTestService({ settings: { volumePurgeAfterMs: 5_000 } });
    try {
      const mine = await quick.newOrg();
      const restore = async (index: number) => {
        const { body } = await mine.post('/v1/volumes', { name: `brink-${index}` });
        const { body: deleted } = await mine.delete(`/v1/volumes/${body.id}`);
        const purgeAt = Date.parse(/goes at (\S+)$/.exec(deleted.message)![1]!);
        if (index >= 5) await sleep(Math.max(0, purgeAt - Date.now() + (index - 25) * 10));
        return { id: body.id, status: (await mine.post(`/v1/volumes/${body.id}/restore`)).status };
      };
      // The first requests precede the purge, and the last ones follow it. The others are spread around its time.
      const restored: Awaited<ReturnType<typeof restore>>[] = [];
      for (let index = 0; index < 5; index += 1) restored.push(await restore(index));
      restored.push(
        ...(await Promise.all(Array.from({ length: 55 }, async (_, index) => restore(index + 5)))),
      );
      expect(new Set(restored.map(({ status }) => status))).toEqual(new Set([200, 404]));
      const kept = restored.filter(({ status }) => status === 200).map(({ id }) => id);
      const { body: left } = await until(
        () => mine.get('/v1/volumes', { include: 'deleted' }),
        ({ body }) => body.every(({ status }: any) => status === 'active'),
      );
      const ids = left.filter(({ kind }: any) => kind === 'managed').map(({ id }: any) => id);
      expect(new Set(ids)).toEqual(new Set(kept));
      const purged = await mine.get('/v1/events', { event_type: 'volume_purged', limit: 100 });
      expect(purged.body.data).toHaveLength(60 - kept.length);
    } finally {
      await quick.close();
    }
  });
});

describe('bad requests', () => {
  const SANDBOX = '/v1/sandboxes/by-name/target';
  let volume: string;
  beforeAll(async () => {
    await client.post('/v1/sandboxes', smallRequest('target'));
    volume = `/v1/volumes/${(await client.post('/v1/volumes', { name: 'target' })).body.id}`;
  });

  test.each([
    ['name', { name: '' }],
    ['name', { name: '-x' }],
    ['name', { name: 'a b' }],
    ['name', { name: 'a/b' }],
    ['name', { name: 'x'.repeat(129) }],
    ['name', { name: 1 }],
    ['name', { name: 'a\0' }],
    ['slug', { slug: 'ab' }],
    ['slug', { slug: 'Abc' }],
    ['slug', { slug: 'a--b' }],
    ['slug', { name: 'good', slug: 'x'.repeat(64) }],
    ['slug', { slug: ['abc'] }],
  ])('a bad %s does not rename a sandbox: %j', async (field, body) => {
    const { body: before } = await client.get(SANDBOX);
    const { status, body: answer } = await client.patch(SANDBOX, body);
    expect([status, answer.error.code, answer.error.details]).toEqual([400, 'invalid_request', { field }]);
    expect((await client.get(SANDBOX)).body).toEqual(before);
  });

  test.each([
    ['capacity_gib', { capacity_gib: 0 }],
    ['capacity_gib', { capacity_gib: -1 }],
    ['capacity_gib', { capacity_gib: 1.5 }],
    ['capacity_gib', { capacity_gib: '1' }],
    ['capacity_gib', { capacity_gib: 2 ** 31 }],
    ['labels.a', { labels: { a: 1 } }],
    ['labels.a', { labels: { a: null } }],
    ['labels', { labels: ['a'] }],
    ['labels.', { labels: { '': 'x' } }],
    ['labels.service.x', { labels: { 'service.x': 'y' } }],
  ])('a bad %s does not change a volume: %j', async (field, body) => {
    const { status, body: answer } = await client.patch(volume, body);
    expect([status, answer.error.code, answer.error.details]).toEqual([400, 'invalid_request', { field }]);
  });

  test.each([[undefined], ['null'], ['[]'], ['1']])('the body %s is refused', async (body) => {
    for (const path of [SANDBOX, volume]) {
      const { status, body: answer } = await client.request(
        'PATCH',
        path,
        body === undefined ? {} : { body },
      );
      expect([status, answer.error.code]).toEqual([400, 'invalid_request']);
    }
  });

  test('unknown keys are ignored', async () => {
    expect((await client.patch(SANDBOX, { status: 'running', org_id: 'x' })).body.status).toBe('created');
    const { status, body } = await client.patch(volume, { name: 'other', status: 'deleting' });
    expect([status, body.name, body.status]).toEqual([200, 'target', 'active']);
  });

  test('unknown ids and ids of deleted resources are not found', async () => {
    const { body: gone } = await client.post('/v1/sandboxes', smallRequest('gone'));
    await client.delete(`/v1/sandboxes/${gone.id}`);
    for (const path of [
      `/v1/sandboxes/${gone.id}`,
      '/v1/sandboxes/by-name/gone',
      `/v1/volumes/${uuidv7()}`,
    ]) {
      const { status, body } = await client.patch(path, {});
      expect([status, body.error.code]).toEqual([404, 'sandbox_not_found']);
    }
    expect((await client.post(`/v1/volumes/${uuidv7()}/restore`)).status).toBe(404);
    expect((await client.post('/v1/volumes/nothing/restore')).status).toBe(400);
  });
});

test('an organization that has made many bytes of audit events changes no long labels for a while', async () => {
  const longEvents = new LongEvents({ maxBytes: 30_000, windowSecs: 60 });
  const app = await buildApp({ ...service.ctx, longEvents });
  onTestFinished(() => app.close());
  const by = makeClient(await app.listen({ port: 0 }), client);
  const stranger = makeClient(by.url, await service.newOrg());
  const long = (letter: string, length = 16) => ({
    labels: Object.fromEntries(Array.from({ length }, (_, n) => [`k${n}`, letter.repeat(1_000)])),
  });
  const make = async (owner: Client, name: string) =>
    (await owner.post('/v1/sandboxes', smallRequest(name))).body.id;
  const [id, strange] = [await make(by, 'relabelled'), await make(stranger, 'relabelled')];
  const patch = (labels: object) => by.patch(`/v1/sandboxes/${id}`, labels);
  // Each event has the labels before and after.
  const statuses = [await patch(long('a')), await patch(long('b'))].map(({ status }) => status);
  expect(statuses).toEqual([200, 200]);
  const refused = await patch(long('c'));
  expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
  expect(refused.body.error.message).toContain('too many bytes of audit events');
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await patch({ name: 'renamed' })).body.spec.labels).toEqual(long('b').labels);
  const key = { name: 'long', scopes: ['sandboxes:read'], ...long('d', 8) };
  expect((await by.post('/v1/keys', key)).status).toBe(429);
  expect((await stranger.patch(`/v1/sandboxes/${strange}`, long('a'))).status).toBe(200);
  expect(await eventsOf(id, 'sandbox_relabelled')).toHaveLength(2);
});
