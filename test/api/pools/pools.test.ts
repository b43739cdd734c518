import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKey } from '../../../src/keys/create.js';
import { operator } from '../../../src/audit/events/actor.js';
import { FULL_ACCESS } from '../../../src/access/access.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const running = { start: true, wait_for: 'running' } as const;
const { name: _, ...small } = smallRequest('x');
/** With a long shell in the first line of each they are longer than a handover. */
const longScripts = Object.fromEntries(Array.from({ length: 10 }, (_one, at) => [`script-${at}`, 'true']));

let service: TestService;
let broken: string | undefined;
beforeAll(async () => {
  service = await startTestService({ simulated: { failStart: () => broken } });
});
afterAll(() => service.close());

async function put(client: Client, name: string, change: object = {}) {
  return client.request('PUT', `/v1/pools/${name}`, { body: { ...small, size: 2, ...change } });
}

async function whenReady(client: Client, name: string, count: number) {
  const shown = async () => (await client.get(`/v1/pools/${name}`)).body;
  return until(shown, ({ ready, starting }) => ready === count && starting === 0);
}

async function whenFailed(client: Client, name: string) {
  const shown = async () => (await client.get(`/v1/pools/${name}`)).body;
  return until(shown, ({ last_failure_message }) => last_failure_message !== null);
}

async function eventsOf(client: Client, type: string) {
  return (await client.get('/v1/events', { event_type: type, limit: 100 })).body.data;
}

describe('a create that matches', () => {
  let client: Client;
  beforeAll(async () => {
    client = await service.newOrg();
    expect((await put(client, 'small')).status).toBe(200);
  });

  test('takes a started sandbox of the pool, with its own name, labels and variables', async () => {
    const before = await whenReady(client, 'small', 2);
    const ids = before.sandboxes.map(({ id }: { id: string }) => id);
    const request = { ...smallRequest('mine'), labels: { team: 'a' }, env: [{ key: 'A', value: 'b' }] };
    const { status, body } = await client.post('/v1/sandboxes', request, running);
    expect([status, body.status, body.name, body.spec.labels, body.spec.env]).toEqual([
      200,
      'running',
      'mine',
      { team: 'a' },
      [{ key: 'A', value: 'b' }],
    ]);
    expect(body.source).toEqual({ start: 'warm', pool: 'small', reason: null, differs: [] });
    expect(ids).toContain(body.id);
    expect(body.started_at < body.created_at).toBe(true);
    const [created] = await eventsOf(client, 'sandbox_created');
    expect(created.payload).toMatchObject({
      sandbox_id: body.id,
      name: 'mine',
      source: 'warm',
      pool: 'small',
    });
    const byLabel = await client.get('/v1/sandboxes', { labels: JSON.stringify({ team: 'a' }) });
    expect(byLabel.body.data.map(({ id }: { id: string }) => id)).toEqual([body.id]);
    // It is given once, and another takes its place.
    const after = await whenReady(client, 'small', 2);
    expect(after.given).toBe(1);
    expect(after.sandboxes.map(({ id }: { id: string }) => id)).not.toContain(body.id);
    const { body: stopped } = await client.post(`/v1/sandboxes/${body.id}/stop`, undefined, {
      wait_for: 'stopped',
    });
    expect(stopped.status).toBe('stopped');
    const { body: again } = await client.post(`/v1/sandboxes/${body.id}/start`, undefined, {
      wait_for: 'running',
    });
    expect([again.status, again.source.start]).toEqual(['running', 'warm']);
  });

  test('repeats its answer under an idempotency key', async () => {
    await whenReady(client, 'small', 2);
    const ask = () =>
      client.request('POST', '/v1/sandboxes', {
        body: smallRequest('once'),
        query: running,
        headers: { 'idempotency-key': 'once' },
      });
    const [one, two] = [await ask(), await ask()];
    expect(one.body.source.start).toBe('warm');
    expect(two.body).toEqual(one.body);
  });

  test('counts the ready sandboxes in the quotas once', async () => {
    await whenReady(client, 'small', 2);
    const used = async () => (await client.get('/v1/quotas')).body;
    const before = await used();
    const { body } = await client.post(
      '/v1/sandboxes',
      { ...smallRequest('brief'), lifecycle: { ephemeral: true } },
      running,
    );
    expect(body.source.start).toBe('warm');
    await whenReady(client, 'small', 2);
    const { rows } = await service.ctx.pool.query<Record<string, number>>(
      `select sum(existing)::int as existing, sum(ephemeral_running)::int as ephemeral,
         sum(persistent_running)::int as persistent,
         (select count(*)::int from sandboxes s where s.org_id = $1 and s.removed_at is null) as all,
         (select count(*)::int from sandboxes s where s.org_id = $1 and s.removed_at is null and s.ephemeral
            and s.status in ('starting', 'running')) as brief,
         (select count(*)::int from sandboxes s where s.org_id = $1 and s.removed_at is null and not s.ephemeral
            and s.status in ('starting', 'running')) as lasting
       from sandbox_counts where org_id = $1`,
      [client.org.id],
    );
    const { existing, ephemeral, persistent, all, brief, lasting } = rows[0]!;
    expect([existing, ephemeral, persistent]).toEqual([all, brief, lasting]);
    expect(before).toBeDefined();
  });
});

describe('a create with a command, scripts or a working directory', () => {
  const runtime = { cmd: ['sleep', '9'], entrypoint: [], workdir: '/work', scripts: { run: 'true' } };
  const handedOver = async (id: string) => {
    const { rows } = await service.ctx.pool.query<{ takes: string[]; done: boolean; command: string }>(
      `select s.takes, r.handed_over as done, r.command from sandboxes s
       join runs r on r.org_id = s.org_id and r.id = s.run_id where s.id = $1`,
      [id],
    );
    return rows[0]!;
  };

  test('takes a started sandbox, which gets them at each start', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    await whenReady(client, 'small', 1);
    const request = { ...smallRequest('mine'), runtime, lifecycle: { ends_with_command: true } };
    const { body } = await client.post('/v1/sandboxes', request, running);
    expect([body.source.start, body.command.status]).toEqual(['warm', 'running']);
    expect(body.spec.runtime).toMatchObject(runtime);
    const first = await until(
      () => handedOver(body.id),
      ({ done }) => done,
    );
    expect(first).toEqual({ takes: ['command', 'scripts', 'workdir'], done: true, command: 'ends_run' });
    await client.post(`/v1/sandboxes/${body.id}/stop`, undefined, { wait_for: 'stopped' });
    await client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
    await until(
      () => handedOver(body.id),
      ({ done }) => done,
    );
  });

  test('gets a handover for what it asks for alone, and none without such a part', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 2 });
    await whenReady(client, 'small', 2);
    const create = async (name: string, part: object) =>
      (await client.post('/v1/sandboxes', { ...smallRequest(name), runtime: part }, running)).body;
    const [plain, commanded] = [await create('a', {}), await create('b', { cmd: ['true'] })];
    expect([plain.source.start, commanded.source.start]).toEqual(['warm', 'warm']);
    expect((await handedOver(plain.id)).takes).toBeNull();
    expect((await handedOver(commanded.id)).takes).toEqual(['command']);
    expect([plain.command, commanded.command.status]).toEqual([null, 'running']);
  });

  test('starts cold where no ready sandbox takes them, and the answer names them', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    await whenReady(client, 'small', 1);
    // As one of an earlier release, or of an engine that the service reaches in no other way.
    await service.ctx.pool.query("update sandboxes set takes = '{scripts}' where org_id = $1", [
      client.org.id,
    ]);
    const { body } = await client.post('/v1/sandboxes', { ...smallRequest('a'), runtime }, running);
    const differs = ['runtime.cmd', 'runtime.entrypoint', 'runtime.workdir'];
    expect(body.source).toEqual({ start: 'cold', pool: 'small', reason: 'differs', differs });
    const scripts = { ...smallRequest('b'), runtime: { scripts: runtime.scripts } };
    expect((await client.post('/v1/sandboxes', scripts, running)).body.source.start).toBe('warm');
  });
});

describe('a create that differs', () => {
  test.each([
    ['runtime.user', { runtime: { user: '1000' } }],
    ['runtime.hostname', { runtime: { hostname: 'own' } }],
    ['runtime.scripts', { runtime: { shell: '/'.padEnd(20_000, 'x'), scripts: longScripts } }],
    ['resources.vcpus', { resources: { vcpus: 2 } }],
    ['network', { network: { enabled: false } }],
    ['env', { env: [{ key: 'TOKEN', value: 'x', secret: true }] }],
    ['pull_policy', { pull_policy: 'always' }],
  ])('starts cold, and the answer says that %s does', async (field, change) => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    await whenReady(client, 'small', 1);
    const { status, body } = await client.post(
      '/v1/sandboxes',
      { ...smallRequest('cold'), ...change },
      running,
    );
    expect([status, body.status]).toEqual([200, 'running']);
    expect(body.source).toEqual({ start: 'cold', pool: 'small', reason: 'differs', differs: [field] });
    const [created] = await eventsOf(client, 'sandbox_created');
    expect(created.payload.source).toBe('cold');
    expect((await client.get('/v1/pools/small')).body.ready).toBe(1);
  });

  test('has no source without a pool of its image, and none without a start', async () => {
    const client = await service.newOrg();
    await put(client, 'other', { image: { type: 'oci', reference: 'other:1' }, size: 1 });
    expect((await client.post('/v1/sandboxes', smallRequest('a'), running)).body.source).toBeNull();
    await put(client, 'small', { size: 1 });
    expect((await client.post('/v1/sandboxes', smallRequest('b'))).body.source).toBeNull();
  });

  test('is cold when the pool has none ready', async () => {
    const client = await service.newOrg();
    broken = 'no image';
    await put(client, 'small', { size: 1 });
    const failing = await whenFailed(client, 'small');
    expect(failing).toMatchObject({ last_failure_message: 'no image', ready: 0 });
    broken = undefined;
    // A change tries again at once.
    await put(client, 'small', { size: 1, most: 7 });
    await whenReady(client, 'small', 1);
    const one = await client.post('/v1/sandboxes', smallRequest('one'), running);
    expect(one.body.source.start).toBe('warm');
  });
});

describe('a ready sandbox', () => {
  test('is in no list and behind no route of sandboxes', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    const { sandboxes } = await whenReady(client, 'small', 1);
    const [{ id, name }] = sandboxes;
    expect((await client.get('/v1/sandboxes')).body.data).toEqual([]);
    for (const place of [id, `by-name/${name}`]) {
      expect((await client.get(`/v1/sandboxes/${place}`)).status).toBe(404);
      expect((await client.post(`/v1/sandboxes/${place}/stop`)).status).toBe(404);
      expect((await client.patch(`/v1/sandboxes/${place}`, { name: 'mine' })).status).toBe(404);
      expect((await client.delete(`/v1/sandboxes/${place}`)).status).toBe(404);
    }
    expect((await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'true' })).status).toBe(404);
    expect((await client.get(`/v1/sandboxes/${id}/logs`)).status).toBe(404);
    expect((await client.post(`/v1/sandboxes/${id}/previews`, { port: 80 })).status).toBe(404);
  });

  test('is billed from its start, to the label of its pool until a create takes it', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    const { sandboxes } = await whenReady(client, 'small', 1);
    const { body } = await client.post(
      '/v1/sandboxes',
      { ...smallRequest('mine'), labels: { team: 'a' } },
      running,
    );
    expect(body.id).toBe(sandboxes[0].id);
    const { rows } = await service.ctx.pool.query<{ runs: number; gapless: boolean; keys: string[] }>(
      `select (select count(*)::int from runs r where r.sandbox_id = $1) as runs,
         (select max(from_at) filter (where key = 'team') = max(to_at) filter (where key = 'service.pool')
          from label_periods where sandbox_id = $1) as gapless,
         (select array_agg(key order by from_at) from label_periods where sandbox_id = $1) as keys`,
      [body.id],
    );
    expect(rows[0]).toEqual({ runs: 1, gapless: true, keys: ['service.pool', 'team'] });
  });
});

describe('a pool', () => {
  test('follows its size, keeps to its limit, and goes with its sandboxes', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 3, most: 4 });
    await whenReady(client, 'small', 3);
    for (const name of ['a', 'b', 'c']) await client.post('/v1/sandboxes', smallRequest(name), running);
    const limited = await whenReady(client, 'small', 1);
    expect(limited.given).toBe(3);
    await put(client, 'small', { size: 1, most: null });
    await put(client, 'small', { size: 0 });
    await whenReady(client, 'small', 0);
    await put(client, 'small', { size: 1, resources: { vcpus: 2, memory_mib: 64 } });
    const [{ id }] = (await whenReady(client, 'small', 1)).sandboxes;
    expect((await client.delete('/v1/pools/small')).body.message).toBe('the pool "small" is deleted');
    expect((await client.get('/v1/pools/small')).body.error.code).toBe('pool_not_found');
    const read = async () =>
      service.ctx.pool.query<{ gone: boolean; closed: boolean }>(
        `select s.destroyed_at is not null as gone, r.end_reason is not null as closed
         from sandboxes s join runs r on r.sandbox_id = s.id where s.id = $1`,
        [id],
      );
    const { rows } = await until(read, (found) => found.rows[0]!.gone);
    expect(rows).toEqual([{ gone: true, closed: true }]);
    expect((await client.get('/v1/sandboxes')).body.data).toHaveLength(3);
    expect((await eventsOf(client, 'pool_deleted'))[0].actor.kind).toBe('api_key');
  });

  test('refuses what belongs to one sandbox alone', async () => {
    const client = await service.newOrg();
    const ask = async (change: object) => (await put(client, 'small', change)).body.error;
    expect(await ask({ size: 101 })).toMatchObject({ code: 'invalid_request' });
    expect(await ask({ size: 3, most: 2 })).toMatchObject({ details: { field: 'most' } });
    expect(await ask({ labels: { a: 'b' } })).toMatchObject({ code: 'invalid_request' });
    expect(await ask({ network: { ports: [{ guest_port: 80, host_port: 0 }] } })).toMatchObject({
      details: { field: 'network.ports' },
    });
  });

  test('is refused on a cluster, unless it rests', async () => {
    const client = await service.newOrg();
    const cluster = service.ctx.runtime as { placesRuns?: boolean };
    cluster.placesRuns = true;
    try {
      const { status, body } = await put(client, 'small', { size: 1 });
      expect([status, body.error.code, body.error.details.field]).toEqual([501, 'not_supported', 'size']);
      expect(body.error.message).toContain('create them without a pool');
      expect((await put(client, 'small', { size: 0 })).status).toBe(200);
    } finally {
      delete cluster.placesRuns;
    }
  });

  test('waits while a quota has no room, and says so', async () => {
    const client = await service.newOrg();
    await service.ctx.pool.query('update quotas set max_sandboxes = 1 where org_id = $1', [client.org.id]);
    await put(client, 'small', { size: 2 });
    const body = await whenFailed(client, 'small');
    expect(body.last_failure_message).toBe('max_sandboxes: the organization uses 1 of at most 1');
    expect(body.ready + body.starting).toBe(1);
    // The member counts.
    const refused = await client.post(
      '/v1/sandboxes',
      { ...smallRequest('more'), runtime: { user: '1' } },
      running,
    );
    expect(refused.body.error.code).toBe('quota_exceeded');
    // A create that takes it needs no more room.
    await whenReady(client, 'small', 1);
    expect((await client.post('/v1/sandboxes', smallRequest('fits'), running)).body.source.start).toBe(
      'warm',
    );
  });

  test('is not for keys that are narrowed to labels, whose creates may take from it', async () => {
    const client = await service.newOrg();
    await put(client, 'small', { size: 1 });
    await whenReady(client, 'small', 1);
    const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), {
      ...FULL_ACCESS,
      scopes: ['sandboxes:write'],
      labels: { team: 'a' },
    });
    for (const [method, path] of [
      ['GET', '/v1/pools'],
      ['GET', '/v1/pools/small'],
      ['DELETE', '/v1/pools/small'],
    ] as const) {
      expect((await client.request(method, path, { key })).body.error.code).toBe('label_not_allowed');
    }
    const { body } = await client.request('POST', '/v1/sandboxes', {
      body: smallRequest('narrow'),
      query: running,
      key,
    });
    const start = { pool: null, reason: null, differs: [] };
    expect([body.source, body.spec.labels]).toEqual([{ start: 'warm', ...start }, { team: 'a' }]);
    const cold = { ...smallRequest('cold'), runtime: { user: '1' } };
    const other = await client.request('POST', '/v1/sandboxes', { body: cold, query: running, key });
    expect(other.body.source).toEqual({ start: 'cold', ...start });
    // No answer to such a key tells more, whoever created the sandbox. Other keys see all of it.
    const whole = { start: 'cold', pool: 'small', reason: 'differs', differs: ['runtime.user'] };
    const path = `/v1/sandboxes/${other.body.id}`;
    const asked = [
      ['GET', path],
      ['GET', '/v1/sandboxes/by-name/cold'],
      ['PATCH', path],
      ['POST', `${path}/stop`],
      ['POST', `${path}/start`],
      ['POST', `${path}/restart`],
    ] as const;
    for (const [method, place] of asked) {
      const body = method === 'PATCH' ? { body: { name: 'cold' } } : {};
      const query = place.endsWith('/stop') ? { wait_for: 'stopped' } : {};
      const shown = await client.request(method, place, { ...body, query, key });
      expect([place, shown.body.source]).toEqual([place, { start: 'cold', ...start }]);
    }
    const listed = await client.request('GET', '/v1/sandboxes', { query: { name_prefix: 'cold' }, key });
    expect(listed.body.data[0].source).toEqual({ start: 'cold', ...start });
    expect((await client.get(path)).body.source).toEqual(whole);
    expect((await client.get('/v1/sandboxes', { name_prefix: 'cold' })).body.data[0].source).toEqual(whole);
  });
});
