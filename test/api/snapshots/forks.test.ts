import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { openSecrets } from '../../../src/secrets/secrets.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, forked } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' } as const;
const UNKNOWN = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

async function start(client: Client, name: string, part: Record<string, unknown> = {}): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, part), running);
  expect(body.status, text).toBe('running');
  return body.id;
}

const fork = async (client: Client, id: string, request: object) =>
  client.post(`/v1/sandboxes/${id}/fork`, request);

/** Makes copies, and returns the operation when it has ended and they run. */
async function copied(client: Client, id: string, request: object): Promise<Record<string, any>> {
  const { status, body, text } = await fork(client, id, request);
  expect(status, text).toBe(200);
  expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded', error: null });
  return until(
    async () => (await client.get(`/v1/fork-operations/${body.id}`)).body,
    ({ sandboxes }) => sandboxes.every((one: any) => one.status !== 'starting'),
  );
}

const namesOf = (sandboxes: { name: string }[]) => sandboxes.map(({ name }) => name);
const show = async (client: Client, name: string) => (await client.get(`/v1/sandboxes/by-name/${name}`)).body;

describe('copies of a sandbox', () => {
  let client: Client;
  let source: string;
  beforeAll(async () => {
    client = await service.newOrg();
    source = await start(client, 'source', {
      labels: { team: 'ml', role: 'source' },
      runtime: { cmd: ['sleep', '600'], hostname: 'own-host' },
      env: [{ key: 'PLAIN', value: 'kept' }],
      patches: [{ type: 'text', path: '/etc/app.conf', content: 'x', replace: true }],
      lifecycle: { idle_timeout_secs: 600 },
    });
  });

  test('run with the specification of the source, and an identity of their own', async () => {
    const operation = await copied(client, source, { count: 3, labels: { role: 'copy', task: 'build' } });
    expect(operation).toMatchObject({ count: 3, sandbox_id: source, sandbox_name: 'source' });
    expect(namesOf(operation['sandboxes'])).toEqual(['source-1', 'source-2', 'source-3']);
    const original = (await client.get(`/v1/sandboxes/${source}`)).body;
    const seen = { ids: new Set([source]), slugs: new Set([original.slug]) };
    for (const { id, status } of operation['sandboxes']) {
      expect(status).toBe('running');
      const { body } = await client.get(`/v1/sandboxes/${id}`);
      expect(body.disk_snapshot_id).toBe(operation['id']);
      expect(body.spec).toEqual({
        ...original.spec,
        labels: { team: 'ml', role: 'copy', task: 'build' },
        runtime: { ...original.spec.runtime, hostname: null },
      });
      seen.ids.add(id);
      seen.slugs.add(body.slug);
    }
    expect([seen.ids.size, seen.slugs.size]).toEqual([4, 4]);
    const { rows } = await service.ctx.pool.query(
      `select run_spec ->> 'snapshotId' as disk, run_spec -> 'patches' as patches from sandboxes
       where disk_snapshot_id = $1`,
      [operation['id']],
    );
    expect(rows).toEqual(Array.from({ length: 3 }, () => ({ disk: operation['id'], patches: [] })));
    expect((await client.get(`/v1/sandboxes/${source}`)).body).toEqual(original);
  });

  test('take the first free numbers, the numbers of a prefix, or names of the request', async () => {
    await client.delete('/v1/sandboxes/by-name/source-2');
    const request = { count: 2, start: false };
    expect(namesOf((await copied(client, source, request))['sandboxes'])).toEqual(['source-2', 'source-4']);
    const prefixed = await copied(client, source, { ...request, name_prefix: 'attempt' });
    expect(namesOf(prefixed['sandboxes'])).toEqual(['attempt-1', 'attempt-2']);
    const named = await copied(client, source, { ...request, names: ['b', 'a'] });
    expect(named['sandboxes'].map(({ name, status }: any) => [name, status])).toEqual([
      ['b', 'created'],
      ['a', 'created'],
    ]);
    const { body } = await client.post('/v1/sandboxes/by-name/a/start', undefined, { wait_for: 'running' });
    expect(body.status).toBe('running');
  });

  test('begin with a stopped sandbox, or with a copy, by its id or its name', async () => {
    const rested = await start(client, 'rested');
    await client.post(`/v1/sandboxes/${rested}/stop`, undefined, { wait_for: 'stopped' });
    const first = await client.post('/v1/sandboxes/by-name/rested/fork', { count: 1 });
    await forked(client, first.body.id);
    const [copy] = first.body.sandboxes;
    await until(
      async () => (await client.get(`/v1/sandboxes/${copy.id}`)).body.status,
      (status) => status === 'running',
    );
    const second = await copied(client, copy.id, { count: 1 });
    expect(namesOf(second['sandboxes'])).toEqual(['rested-1-1']);
    // The captured disk of the first fork is the base of the second one.
    const { result } = await capture(client, copy.id, 'of-a-copy');
    expect(result.manifest.parent).toMatch(/^sha256:[0-9a-f]{64}$/);
  });

  test('have no secrets and no ports, unless the request says so', async () => {
    const secret = {
      env_var: 'TOKEN',
      value: 'canary-network',
      allowed_hosts: [{ type: 'exact', value: 'api.example.com' }],
    };
    const id = await start(client, 'equipped', {
      env: [
        { key: 'PLAIN', value: 'kept' },
        { key: 'HIDDEN', value: 'canary-variable', secret: true },
      ],
      network: { ports: [{ guest_port: 80 }], secrets: { entries: [secret] } },
    });
    const hostPort = (await show(client, 'equipped')).spec.network.ports[0].host_port;
    const secretsOf = async (name: string) =>
      openSecrets(service.ctx.pool, service.ctx.keyring, client.org.id, (await show(client, name)).id);

    await copied(client, id, { count: 1, names: ['bare'] });
    const bare = (await show(client, 'bare')).spec;
    expect([bare.env, bare.network.secrets, bare.network.ports]).toEqual([
      [{ key: 'PLAIN', value: 'kept' }],
      [],
      [],
    ]);
    expect(await secretsOf('bare')).toEqual({ registry: null, values: {} });

    await copied(client, id, { count: 2, name_prefix: 'full', secrets: 'inherit', ports: 'inherit' });
    const hostPorts = new Set([hostPort]);
    for (const name of ['full-1', 'full-2']) {
      const { env, network } = (await show(client, name)).spec;
      expect(env.map(({ key, value }: any) => [key, value])).toEqual([
        ['PLAIN', 'kept'],
        ['HIDDEN', '***'],
      ]);
      expect(network.secrets).toMatchObject([{ env_var: 'TOKEN' }]);
      expect(network.ports).toMatchObject([{ guest_port: 80 }]);
      hostPorts.add(network.ports[0].host_port);
      expect(await secretsOf(name)).toEqual({
        registry: null,
        values: { TOKEN: 'canary-network' },
        env: { HIDDEN: 'canary-variable' },
      });
    }
    expect(hostPorts.size).toBe(3);
    const { text } = await client.get('/v1/events', { limit: 100 });
    expect(text).not.toContain('canary');
  });

  test('share the volumes of the source when the request says so', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
    const mounts = [
      { type: 'named', name: 'data', guest: '/data' },
      { type: 'tmpfs', guest: '/fast', size_mib: 8 },
    ];
    const id = await start(client, 'mounting', { mounts });
    const unsaid = await fork(client, id, { count: 1 });
    expect([unsaid.status, unsaid.body.error.details]).toEqual([400, { field: 'volumes' }]);
    await copied(client, id, { count: 1, names: ['sharing'], volumes: 'share' });
    expect((await show(client, 'sharing')).spec.mounts).toEqual((await show(client, 'mounting')).spec.mounts);
    await client.delete(`/v1/sandboxes/${id}`);
    const used = await client.delete(`/v1/volumes/${volume.id}`);
    expect([used.status, used.text]).toEqual([409, expect.stringContaining('sharing')]);

    const image = { type: 'disk_image', host: 'disk.raw', guest: '/disk', format: 'raw' };
    const writes = await start(client, 'writing', { mounts: [image] });
    const refused = await fork(client, writes, { count: 1, volumes: 'share' });
    expect(refused.body.error.message).toContain('/disk');
  });

  test('leave events of their request, of their disk and of each copy', async () => {
    const { id, sandboxes } = await copied(client, source, { count: 1, names: ['audited'] });
    const { body } = await client.get('/v1/events', { resource_id: source, limit: 100 });
    const events = body.data.filter(({ payload }: any) => payload.fork_id === id).toReversed();
    expect(events.map(({ event_type, actor }: any) => [event_type, actor.kind])).toEqual([
      ['sandbox_fork_requested', 'api_key'],
      ['sandbox_forked', 'system'],
    ]);
    expect(events[0].payload).toMatchObject({ count: 1, start: true, secrets: 'none', ports: 'none' });
    const of = await client.get('/v1/events', { resource_id: sandboxes[0].id, limit: 100 });
    const created = of.body.data.find(({ event_type }: any) => event_type === 'sandbox_created');
    expect(created.payload).toMatchObject({ reason: 'forked', forked_from: source, disk_snapshot_id: id });
  });

  test('are refused by their field', async () => {
    const cases: [object, string][] = [
      [{}, 'count'],
      [{ count: 0 }, 'count'],
      [{ count: 101 }, 'count'],
      [{ count: 2, names: ['a'] }, 'names'],
      [{ count: 2, names: ['x', 'x'] }, 'names[1]'],
      [{ count: 1, names: ['-'] }, 'names[0]'],
      [{ count: 1, names: ['x'], name_prefix: 'y' }, 'name_prefix'],
      [{ count: 1, name_prefix: '-' }, 'name_prefix'],
      [{ count: 1, name_prefix: 'x'.repeat(127) }, 'name_prefix'],
      [{ count: 1, labels: { 'sandbox.x': 'y' } }, 'labels.sandbox.x'],
      [{ count: 1, secrets: 'all' }, 'secrets'],
      [{ count: 1, ports: 'same' }, 'ports'],
      [{ count: 1, volumes: 'none' }, 'volumes'],
      [{ count: 1, network: {} }, 'network'],
    ];
    for (const [request, field] of cases) {
      const { status, body, text } = await fork(client, source, request);
      expect([status, body.error.details?.field], text).toEqual([400, field]);
    }
    const missing = await fork(client, UNKNOWN, { count: 1 });
    expect([missing.status, missing.body.error.code]).toEqual([404, 'sandbox_not_found']);
    const { body: fresh } = await client.post('/v1/sandboxes', smallRequest('never-ran'));
    const early = await fork(client, fresh.id, { count: 1 });
    expect([early.status, early.body.error.code]).toEqual([409, 'invalid_state_transition']);
    expect((await client.get(`/v1/fork-operations/${UNKNOWN}`)).body.error.code).toBe(
      'fork_operation_not_found',
    );
  });
});

describe('the disk of copies', () => {
  test('is no snapshot for callers', async () => {
    const client = await service.newOrg();
    const { id } = await copied(client, await start(client, 'hidden'), { count: 1 });
    for (const path of ['/v1/snapshots', '/v1/snapshots?include=deleted', '/v1/snapshot-operations']) {
      expect((await client.get(path)).body.data, path).toEqual([]);
    }
    for (const path of [
      `/v1/snapshots/${id}`,
      `/v1/snapshot-operations/${id}`,
      '/v1/snapshots/by-name/hidden',
    ]) {
      expect((await client.get(path)).status, path).toBe(404);
    }
    expect((await client.delete(`/v1/snapshots/${id}`)).status).toBe(404);
    expect((await client.post(`/v1/snapshots/${id}/restore`, {})).status).toBe(404);
    const image = { type: 'disk_snapshot', id };
    const thief = await client.post('/v1/sandboxes', { ...smallRequest('thief'), image });
    expect([thief.status, thief.body.error.code]).toEqual([404, 'snapshot_not_found']);
    // The name of the source stays free for a snapshot.
    expect((await capture(client, (await show(client, 'hidden')).id, 'hidden'))['status']).toBe('succeeded');
  });

  test('is counted, charged and kept as long as a copy exists', async () => {
    const client = await service.newOrg();
    const source = await start(client, 'needed');
    const { id, sandboxes, size_bytes } = await copied(client, source, { count: 2 });
    expect(size_bytes).toBe(1024 ** 2);
    await client.delete(`/v1/sandboxes/${source}`);
    const { rows } = await service.ctx.pool.query<{ used_mib: string; open: boolean }>(
      'select used_mib::text, to_at > now() as open from accruals where volume_id = $1',
      [id],
    );
    expect(rows).toEqual([{ used_mib: '1.0000000000', open: true }]);
    const quotas = async () => (await client.get('/v1/quotas')).body;
    expect(await quotas()).toMatchObject({ snapshots: 1, snapshot_gib_used: 1 / 1024 });
    await client.delete(`/v1/sandboxes/${sandboxes[0].id}`);
    const again = await client.post(`/v1/sandboxes/${sandboxes[1].id}/restart`, undefined, {
      wait_for: 'running',
    });
    expect(again.body.status, again.text).toBe('running');
    expect((await quotas()).snapshots).toBe(1);
    await client.delete(`/v1/sandboxes/${sandboxes[1].id}`);
    await until(
      async () => (await quotas()).snapshots,
      (count) => count === 0,
      30_000,
    );
    const held = await service.runtime.snapshots!.list();
    expect(held.map(({ snapshotId }) => snapshotId)).not.toContain(id);
    const left = await service.ctx.pool.query('select from accruals where volume_id = $1 and to_at > now()', [
      id,
    ]);
    expect(left.rows).toEqual([]);
    expect((await client.get(`/v1/fork-operations/${id}`)).body).toMatchObject({
      status: 'succeeded',
      sandboxes: [],
    });
  });
});

test('a key that is narrowed to labels forks what it sees, and sees its operations', async () => {
  const client = await service.newOrg();
  const own = await start(client, 'own', { labels: { team: 'a' } });
  const foreign = await start(client, 'foreign', { labels: { team: 'b' } });
  const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), {
    ...FULL_ACCESS,
    scopes: ['sandboxes:write'],
    labels: { team: 'a' },
  });
  const ask = async (method: string, path: string, body?: unknown) =>
    client.request(method, path, { key, ...(body === undefined ? {} : { body }) });
  const hidden = await copied(client, foreign, { count: 1 });
  const made = await ask('POST', `/v1/sandboxes/${own}/fork`, { count: 1, labels: { task: 'x' } });
  expect(made.status, made.text).toBe(200);
  await forked(client, made.body.id);
  expect((await ask('GET', '/v1/sandboxes/by-name/own-1')).body.spec.labels).toEqual({
    team: 'a',
    task: 'x',
  });
  const listed = await ask('GET', '/v1/fork-operations');
  expect(listed.body.data.map(({ id }: any) => id)).toEqual([made.body.id]);
  expect((await ask('GET', `/v1/fork-operations/${hidden['id']}`)).status).toBe(404);
  const refused = await ask('POST', `/v1/sandboxes/${foreign}/fork`, { count: 1 });
  expect([refused.status, refused.body.error.code]).toEqual([404, 'sandbox_not_found']);
  const other = await ask('POST', `/v1/sandboxes/${own}/fork`, { count: 1, labels: { team: 'b' } });
  expect([other.status, other.body.error.code]).toEqual([403, 'label_not_allowed']);
  // A copy that got other labels is not shown to it any more.
  await client.patch('/v1/sandboxes/by-name/own-1', { labels: { team: 'b' } });
  expect((await ask('GET', `/v1/fork-operations/${made.body.id}`)).body.sandboxes).toEqual([]);
});

test('a key without the scope for volumes shares none', async () => {
  const client = await service.newOrg();
  await client.post('/v1/volumes', { name: 'data' });
  const id = await start(client, 'mounting', { mounts: [{ type: 'named', name: 'data', guest: '/data' }] });
  const { key } = await createKey(service.ctx.pool, client.org.id, 'no-volumes', operator('test'), {
    ...FULL_ACCESS,
    scopes: ['sandboxes:write'],
  });
  const body = { count: 1, volumes: 'share' };
  const refused = await client.request('POST', `/v1/sandboxes/${id}/fork`, { key, body });
  expect([refused.status, refused.body.error.details.required_scope]).toEqual([403, 'volumes:write']);
});

test('pages list the operations from the newest to the oldest, without the copies', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'paged');
  const made: string[] = [];
  for (let round = 0; round < 3; round += 1) made.push((await copied(client, id, { count: 1 }))['id']);
  const found: string[] = [];
  for (let cursor: string | undefined, more = true; more;) {
    const { body } = await client.get('/v1/fork-operations', { limit: 2, ...(cursor ? { cursor } : {}) });
    found.push(...body.data.map((one: any) => one.id));
    for (const one of body.data) expect(Object.keys(one)).not.toContain('sandboxes');
    cursor = body.next_cursor;
    more = body.has_more;
  }
  expect(found).toEqual(made.toReversed());
});

test('each copy costs a unit of the rate limit', async () => {
  // Ten units in a window of ten seconds. A busy machine may answer after its end, so another key tries again.
  const limited = await startForTest({ settings: { rateLimit: 1, stopGraceMs: 0 } });
  const refused = await until(
    async () => {
      const client = await limited.newOrg();
      const id = await start(client, 'limited');
      expect((await fork(client, id, { count: 10, start: false })).status).toBe(200);
      return fork(client, id, { count: 1, start: false });
    },
    ({ status }) => status !== 200,
  );
  expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
});

test('an engine without the ability refuses', async () => {
  const plain = await startForTest();
  const capabilities = new Set([...plain.runtime.capabilities].filter((one) => one !== 'disk_snapshots'));
  Object.assign(plain.runtime, { capabilities });
  const client = await plain.newOrg();
  const answer = await fork(client, await start(client, 'plain'), { count: 1 });
  expect([answer.status, answer.body.error.code]).toEqual([501, 'not_supported']);
});
