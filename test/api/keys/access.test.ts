import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import type { Limits } from '../../../src/quotas/limits.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { makeClient, type Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until } from '../../support/polling.js';

let service: TestService;
let client: Client;
let shift = 0;

beforeAll(async () => {
  const { now, addMillis } = await import('../../../src/lib/instant.js');
  service = await startTestService({
    settings: { keyUseWriteMs: 50 },
    now: () => addMillis(now(), shift),
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

async function keyWith(access: Partial<Access>): Promise<Client> {
  const { id, key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), {
    ...FULL_ACCESS,
    ...access,
  });
  return makeClient(service.url, { org: client.org, key, keyId: id });
}

/** Loopback addresses, as a socket of this machine reports them. */
const HERE = ['127.0.0.0/8', '::1'];

const expectError = (answer: { status: number; body: any }, status: number, code: string) =>
  expect([answer.status, answer.body.error?.code]).toEqual([status, code]);

const eventsOf = async (type: string, id: string): Promise<any[]> =>
  (await client.get('/v1/events', { event_type: type, resource_id: id })).body.data;

describe('scopes', () => {
  test('a missing scope is named; write includes read, and org:admin includes all', async () => {
    const reader = await keyWith({ scopes: ['sandboxes:read'] });
    const refused = await reader.post('/v1/sandboxes', smallRequest('x'));
    expect([refused.status, refused.body]).toEqual([
      403,
      {
        error: {
          code: 'insufficient_scope',
          message: 'the key does not have the scope sandboxes:write',
          details: { required_scope: 'sandboxes:write', scopes: ['sandboxes:read'] },
        },
      },
    ]);
    expect((await reader.get('/v1/sandboxes')).status).toBe(200);
    const writer = await keyWith({ scopes: ['sandboxes:write'] });
    expect((await writer.get('/v1/sandboxes')).status).toBe(200);
    expect((await writer.post('/v1/sandboxes', smallRequest('written'))).status).toBe(200);
    expectError(await writer.get('/v1/volumes'), 403, 'insufficient_scope');
    expectError(
      await (await keyWith({ scopes: ['volumes:write'] })).get('/v1/members'),
      403,
      'insufficient_scope',
    );
    expect((await writer.get('/v1/me/org')).status).toBe(200);
  });

  test('mounts need the scope of volumes', async () => {
    await client.post('/v1/volumes', { name: 'shared' });
    const mounting = (name: string, readonly: boolean) => ({
      ...smallRequest(name),
      mounts: [{ type: 'named', name: 'shared', guest: '/data', options: { readonly } }],
    });
    const sandboxes = await keyWith({ scopes: ['sandboxes:write'] });
    expectError(await sandboxes.post('/v1/sandboxes', mounting('m1', true)), 403, 'insufficient_scope');
    const readers = await keyWith({ scopes: ['sandboxes:write', 'volumes:read'] });
    const refused = await readers.post('/v1/sandboxes', mounting('m2', false));
    expect(refused.body.error.details.required_scope).toBe('volumes:write');
    expect((await readers.post('/v1/sandboxes', mounting('m3', true))).status).toBe(200);
  });
});

describe('a key narrowed to a label', () => {
  let ml: Client;
  let mine: any;
  let other: any;
  beforeAll(async () => {
    ml = await keyWith({ scopes: ['sandboxes:write', 'sandboxes:exec'], labels: { team: 'ml' } });
    other = (await client.post('/v1/sandboxes', { ...smallRequest('web'), labels: { team: 'web' } })).body;
    await client.post('/v1/sandboxes', smallRequest('bare'));
    mine = (await ml.post('/v1/sandboxes', { ...smallRequest('trainer'), labels: { stage: 'a' } })).body;
  });

  test('does not take the name of a failed sandbox without the labels', async () => {
    const { id } = (await client.post('/v1/sandboxes', smallRequest('broken'))).body;
    await service.ctx.pool.query(`update sandboxes set status = 'failed' where id = $1`, [id]);
    expectError(await ml.post('/v1/sandboxes', smallRequest('broken')), 409, 'name_already_exists');
    expect((await client.get(`/v1/sandboxes/${id}`)).status).toBe(200);
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('creates only sandboxes with it', async () => {
    expect(mine.spec.labels).toEqual({ stage: 'a', team: 'ml' });
    const refused = await ml.post('/v1/sandboxes', { ...smallRequest('x'), labels: { team: 'web' } });
    expectError(refused, 403, 'label_not_allowed');
    expect(refused.body.error.details).toEqual({ field: 'labels.team', labels: { team: 'ml' } });
  });

  test('lists only sandboxes with it, whatever its filters', async () => {
    const names = async (query: Record<string, string>) =>
      (await ml.get('/v1/sandboxes', query)).body.data.map(({ name }: any) => name);
    expect(await names({})).toEqual(['trainer']);
    expect(await names({ sort: 'name' })).toEqual(['trainer']);
    expect(await names({ labels: '{"stage":"a"}' })).toEqual(['trainer']);
    expect(await names({ labels: '{"team":"web"}' })).toEqual([]);
    expect(await names({ labels: '{"team":"ml"}', name_prefix: 'web' })).toEqual([]);
  });

  test('cannot use a cursor of a wider key', async () => {
    const { body } = await client.get('/v1/sandboxes', { limit: 1 });
    expectError(
      await ml.get('/v1/sandboxes', { limit: 1, cursor: body.next_cursor }),
      400,
      'invalid_request',
    );
  });

  test('finds no other sandbox through any operation', async () => {
    for (const path of [`/v1/sandboxes/${other.id}`, '/v1/sandboxes/by-name/bare']) {
      for (const answer of [
        await ml.get(path),
        await ml.patch(path, { name: 'taken' }),
        await ml.patch(path, { labels: { team: 'ml' } }),
        await ml.post(`${path}/start`, {}),
        await ml.post(`${path}/stop`, {}),
        await ml.get(`${path}/logs`),
        await ml.post(`${path}/exec`, { cmd: 'true' }),
        await ml.request('GET', `${path}/files`, { headers: { 'x-msb-file-path': 'Lw' } }),
        await ml.delete(path),
      ]) {
        expectError(answer, 404, 'sandbox_not_found');
      }
    }
    expectError(await ml.get(`/v1/sandboxes/${other.id}/agent`), 404, 'sandbox_not_found');
    expect((await client.get(`/v1/sandboxes/${other.id}`)).body).toMatchObject({
      name: 'web',
      status: 'created',
    });
  });

  test('cannot remove the label from a sandbox', async () => {
    const path = `/v1/sandboxes/${mine.id}`;
    expectError(await ml.patch(path, { labels: { team: 'web' } }), 403, 'label_not_allowed');
    expect((await ml.patch(path, { labels: { stage: 'b' } })).body.spec.labels).toEqual({
      stage: 'b',
      team: 'ml',
    });
  });

  test('starts, waits for and deletes its own sandboxes', async () => {
    const { body } = await ml.post('/v1/sandboxes', smallRequest('runs'), {
      start: true,
      wait_for: 'running',
    });
    expect(body.status).toBe('running');
    expect((await ml.post(`/v1/sandboxes/${body.id}/stop`, {})).status).toBe(200);
    expect((await ml.delete(`/v1/sandboxes/${body.id}`)).status).toBe(200);
  });

  test('adds labels named like inherited object members, such as constructor, to new sandboxes', async () => {
    const odd = await keyWith({ scopes: ['sandboxes:write'], labels: { constructor: 'x', toString: 'y' } });
    const made = await odd.post('/v1/sandboxes', { ...smallRequest('odd'), labels: {} });
    expect([made.status, made.body.spec?.labels]).toEqual([200, { constructor: 'x', toString: 'y' }]);
    const refused = await odd.post('/v1/sandboxes', { ...smallRequest('x'), labels: { constructor: 'y' } });
    expectError(refused, 403, 'label_not_allowed');
  });

  test('learns that a quota is used up, but not the usage of others', async () => {
    const org = await service.newOrg();
    const { key } = await createKey(service.ctx.pool, org.org.id, 'narrow', operator('test'), {
      ...FULL_ACCESS,
      scopes: ['sandboxes:write'],
      labels: { team: 'ml' },
    });
    const narrow = makeClient(service.url, { ...org, key });
    await org.post('/v1/sandboxes', smallRequest('one'));
    const idle = (await narrow.post('/v1/sandboxes', smallRequest('two'))).body.id;
    const limit = (limits: Partial<Limits>) =>
      setQuotas(service.ctx.pool, org.org.id, limits, operator('test'));

    await limit({ max_sandboxes: 2, included_vcpu_hours: 0, hard_cap: true });
    const [told, untold] = [
      await org.post('/v1/sandboxes', smallRequest('three')),
      await narrow.post('/v1/sandboxes', smallRequest('three')),
    ];
    expect(told.body.error.details).toEqual({ quota: 'max_sandboxes', limit: 2, used: 2 });
    expectError(untold, 403, 'quota_exceeded');
    expect([untold.body.error.message, untold.body.error.details]).toEqual([
      'max_sandboxes: the organization has used it up',
      { quota: 'max_sandboxes', limit: null, used: null },
    ]);
    const hours = await narrow.post(`/v1/sandboxes/${idle}/start`, {});
    expectError(hours, 403, 'quota_exceeded');
    expect(hours.body.error.details).toEqual({ quota: 'included_vcpu_hours', limit: null, used: null });
    // The limits on a single sandbox are shown: a caller needs them to create one.
    await limit({ max_sandboxes: null, max_vcpus_per_sandbox: 1 });
    const large = await narrow.post('/v1/sandboxes', smallRequest('four', { resources: { vcpus: 8 } }));
    expect(large.body.error.details).toEqual({ quota: 'max_vcpus_per_sandbox', limit: 1, used: 8 });
  });

  test('shares its idempotency keys only with keys of the same labels', async () => {
    const labels = {
      team: 'ml',
      long: 'x'.repeat(1_024),
      longer: 'y'.repeat(1_024),
      longest: 'z'.repeat(1_024),
    };
    const [one, same] = [
      await keyWith({ scopes: ['sandboxes:write'], labels }),
      await keyWith({ scopes: ['sandboxes:write'], labels }),
    ];
    const headers = { 'idempotency-key': 'deploy-2' };
    const send = async (by: Client, name: string) => {
      const answer = await by.request('POST', '/v1/sandboxes', { headers, body: smallRequest(name) });
      return [answer.status, answer.headers.get('idempotency-replayed'), answer.body.name];
    };
    expect(await send(one, 'deployed-1')).toEqual([200, null, 'deployed-1']);
    expect(await send(client, 'deployed-2')).toEqual([200, null, 'deployed-2']);
    expect(await send(ml, 'deployed-3')).toEqual([200, null, 'deployed-3']);
    expect(await send(same, 'deployed-1')).toEqual([200, 'true', 'deployed-1']);
    expect((await send(same, 'deployed-4'))[0]).toBe(409);
  });

  test('gets no stored answer to a request of another key', async () => {
    const headers = { 'idempotency-key': 'the same' };
    const path = `/v1/sandboxes/${other.id}`;
    const patch = { headers, body: { name: 'web-2' } };
    expect((await client.request('PATCH', path, patch)).status).toBe(200);
    expectError(await ml.request('PATCH', path, patch), 404, 'sandbox_not_found');
  });
});

describe('networks and expiry', () => {
  test('a key works only from its networks', async () => {
    for (const cidrs of [HERE, ['127.0.0.1'], ['10.0.0.0/8', '0.0.0.0/0']]) {
      const { status } = await (await keyWith({ cidrs })).get('/v1/sandboxes');
      expect([cidrs, status]).toEqual([cidrs, 200]);
    }
    for (const cidrs of [['10.0.0.0/8'], ['127.0.0.2'], ['::/0'], ['128.0.0.0/1']]) {
      expectError(await (await keyWith({ cidrs })).get('/v1/sandboxes'), 403, 'address_not_allowed');
    }
  });

  test('a header does not replace the address of the socket', async () => {
    const far = await keyWith({ cidrs: ['10.0.0.0/8'] });
    const headers = { 'x-forwarded-for': '10.1.1.1', forwarded: 'for=10.1.1.1', 'x-real-ip': '10.1.1.1' };
    expectError(await far.request('GET', '/v1/sandboxes', { headers }), 403, 'address_not_allowed');
  });

  test('a key ends at its expiry, also while cached, and the audit trail has one event for it', async () => {
    const { addMillis } = await import('../../../src/lib/instant.js');
    const expiresAt = addMillis(service.ctx.now(), 60_000);
    const brief = await keyWith({ expiresAt });
    expect((await brief.get('/v1/sandboxes')).status).toBe(200);
    shift = 61_000;
    expectError(await brief.get('/v1/sandboxes'), 401, 'invalid_api_key');
    await until(
      () => eventsOf('api_key_expired', brief.keyId),
      (events) => events.length > 0,
    );
    const [event, ...more] = await eventsOf('api_key_expired', brief.keyId);
    expect(more).toEqual([]);
    expect(event).toMatchObject({ actor: { kind: 'system', code: 'keys' }, payload: { name: 'narrow' } });
    shift = 0;
  });
});

describe('the use of a key', () => {
  test('is recorded outside the request: an event for the first use, then at most one write a minute', async () => {
    const fresh = await keyWith({});
    const read = async () => (await client.get(`/v1/keys/${fresh.keyId}`)).body.last_used_at;
    expect(await read()).toBeNull();
    await fresh.get('/v1/sandboxes');
    const first = await until(read, (at) => at !== null);
    for (let count = 0; count < 5; count += 1) await fresh.get('/v1/sandboxes');
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(await read()).toBe(first);
    const events = await eventsOf('api_key_first_used', fresh.keyId);
    expect(events.map(({ actor, payload }) => [actor, payload])).toEqual([
      [
        { kind: 'api_key', api_key_id: fresh.keyId, name: 'narrow' },
        { api_key_id: fresh.keyId, name: 'narrow', prefix: fresh.key.slice(0, 12) },
      ],
    ]);
  });

  test('is recorded later, as are refusals, when the database is unavailable', async () => {
    const { pool } = service.ctx;
    await pool.query(
      `create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
       create trigger refuse before update of last_used_at, refusals_recorded_at on api_keys
       for each row execute function refuse()`,
    );
    const [user, reader] = [await keyWith({}), await keyWith({ scopes: ['sandboxes:read'] })];
    try {
      service.logs.length = 0;
      await user.get('/v1/sandboxes');
      for (let count = 0; count < 25; count += 1) await reader.get('/v1/volumes');
      await until(
        () =>
          Promise.resolve(
            service.logs.filter((line) => line.includes('writing the use of keys failed')).length,
          ),
        (count) => count >= 2,
      );
    } finally {
      await pool.query('drop function refuse cascade');
    }
    const types = ['api_key_first_used', 'api_key_refused_often'];
    const events = (id: string) => Promise.all(types.map((type) => eventsOf(type, id)));
    const lengths = async (id: string) => (await events(id)).map(({ length }) => length);
    await until(
      async () => [await lengths(user.keyId), await lengths(reader.keyId)],
      ([used, refused]) => used![0]! > 0 && refused![1]! > 0,
    );
    const written = [(await lengths(user.keyId))[0], (await lengths(reader.keyId))[1]];
    expect(written).toEqual([1, 1]);
  });

  test('that is refused often records one event an hour', async () => {
    const reader = await keyWith({ scopes: ['sandboxes:read'] });
    const refuse = async () => {
      for (let count = 0; count < 25; count += 1) await reader.get('/v1/volumes');
    };
    await refuse();
    const [event] = await until(
      () => eventsOf('api_key_refused_often', reader.keyId),
      (events) => events.length > 0,
    );
    expect(event.payload).toMatchObject({ reasons: ['scope'] });
    expect(event.payload.refusals).toBeGreaterThanOrEqual(20);
    await refuse();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await eventsOf('api_key_refused_often', reader.keyId)).toHaveLength(1);
  });
});
