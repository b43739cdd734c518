import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import type { Scope } from '../../../src/access/scopes.js';
import { operator } from '../../../src/audit/events/actor.js';
import { CaptureRefusedError, type Capture } from '../../../src/engine/runtime.js';
import { createKey } from '../../../src/keys/create.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { removeLeftData } from '../../../src/volumes/jobs.js';
import { makeClient, type Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { forked, startSmall, typesOf } from '../../support/snapshots.js';

let service: TestService;
/** Runs in each capture, before the volumes are copied. */
let during: ((capture: Capture) => Promise<void>) | undefined;
beforeAll(async () => {
  const simulated = { onCapture: async (one: Capture) => during?.(one) };
  service = await startTestService({ simulated, settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

interface Volume {
  id: string;
  name: string;
  labels: Record<string, string>;
}

async function makeVolume(client: Client, name: string, part: object = {}): Promise<Volume> {
  const { status, body, text } = await client.post('/v1/volumes', { name, ...part });
  expect(status, text).toBe(200);
  return body;
}

const dataOf = (client: Client, { id }: { id: string }) => service.ctx.volumes.ensure(client.org.id, id);
const named = (name: string, guest = `/${name}`, part: object = {}) => ({
  type: 'named',
  name,
  guest,
  ...part,
});
const fork = (client: Client, id: string, request: object) =>
  client.post(`/v1/sandboxes/${id}/fork`, { volumes: 'copy', ...request });
const listed = async (client: Client): Promise<Volume[]> =>
  (await client.get('/v1/volumes', { include: 'deleted' })).body.filter((one: any) => one.kind !== 'host');
/** The directories of volumes of an organization. */
const kept = (client: Client) => {
  const directory = join(service.volumesDir, client.org.id);
  return existsSync(directory) ? readdirSync(directory).toSorted() : [];
};
const charged = async (client: Client): Promise<string[]> => {
  const { rows } = await service.ctx.pool.query<{ id: string }>(
    `select distinct v.id from accruals a join volumes v on v.org_id = a.org_id and v.id = a.volume_id
     where a.org_id = $1 and a.to_at > now()`,
    [client.org.id],
  );
  return rows.map(({ id }) => id);
};

test('each copy has volumes of its own with the files of the source', async () => {
  const client = await service.newOrg();
  const data = await makeVolume(client, 'data', { labels: { team: 'ml' } });
  const empty = await makeVolume(client, 'empty');
  writeFileSync(join(await dataOf(client, data), 'file'), 'first');
  const mounts = [
    named('data'),
    named('data', '/again'),
    named('empty'),
    { type: 'tmpfs', guest: '/fast', size_mib: 8 },
  ];
  const id = await startSmall(client, 'Source.One', { mounts });
  const { body, text } = await fork(client, id, { count: 2 });
  expect(body.status, text).toBe('queued');
  expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded', error: null });

  const volumes = await listed(client);
  expect(volumes.map(({ name }) => name).toSorted()).toEqual([
    'data',
    'data-source-one-1',
    'data-source-one-2',
    'empty',
    'empty-source-one-1',
    'empty-source-one-2',
  ]);
  const one = volumes.find(({ name }) => name === 'data-source-one-1')!;
  const other = volumes.find(({ name }) => name === 'data-source-one-2')!;
  expect([one.labels, other.labels]).toEqual([{ team: 'ml' }, { team: 'ml' }]);
  writeFileSync(join(await dataOf(client, data), 'file'), 'changed');
  writeFileSync(join(await dataOf(client, one), 'own'), 'own');
  for (const copy of [one, other])
    expect(readFileSync(join(await dataOf(client, copy), 'file'), 'utf8')).toBe('first');
  expect(existsSync(join(await dataOf(client, other), 'own'))).toBe(false);

  const { body: copied } = await client.get('/v1/sandboxes/by-name/Source.One-1');
  expect(copied.spec.mounts.map(({ guest, name }: any) => [guest, name])).toEqual([
    ['/data', 'data-source-one-1'],
    ['/again', 'data-source-one-1'],
    ['/empty', 'empty-source-one-1'],
    ['/fast', undefined],
  ]);
  const { rows } = await service.ctx.pool.query(
    `select run_spec -> 'mounts' as mounts from sandboxes where id = $1`,
    [copied.id],
  );
  expect(rows[0]!['mounts'][0]).toMatchObject({ name: one.name, volumeId: one.id });
  expect((await client.delete(`/v1/volumes/${one.id}`)).body.error.details.sandboxes).toEqual([
    'Source.One-1',
  ]);
  // One without data is not charged, as a new volume is not.
  expect((await charged(client)).toSorted()).toEqual([one.id, other.id].toSorted());
  expect(await typesOf(client, one.id)).toEqual(['volume_created']);
  const { body: events } = await client.get('/v1/events', { resource_id: one.id });
  expect(events.data[0].payload).toMatchObject({ copied_from: data.id, fork_id: body.id, name: one.name });
  const { body: requested } = await client.get('/v1/events', { event_type: 'sandbox_fork_requested' });
  expect(requested.data[0].payload).toMatchObject({ fork_id: body.id, volumes: 'copy' });
  expect((await client.delete(`/v1/volumes/${empty.id}`)).status).toBe(409);
});

test('no caller finds a volume before it is complete, and its name and cap are taken', async () => {
  const client = await service.newOrg();
  await setQuotas(service.ctx.pool, client.org.id, { max_total_storage_gib: 3 }, operator('test'));
  const data = await makeVolume(client, 'data', { capacity_gib: 1 });
  writeFileSync(join(await dataOf(client, data), 'file'), 'x');
  const id = await startSmall(client, 'source', { mounts: [named('data')] });
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  const { body, text } = await fork(client, id, { count: 2, names: ['a', 'b'] });
  expect(body.status, text).toBe('queued');
  const { rows } = await service.ctx.pool.query<{ id: string; name: string }>(
    `select id, name from volumes where org_id = $1 and fork_id = $2 order by name`,
    [client.org.id, body.id],
  );
  expect(rows.map(({ name }) => name)).toEqual(['data-a', 'data-b']);
  expect((await listed(client)).map(({ name }) => name)).toEqual(['data']);
  for (const [method, path] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/restore'],
    ['GET', '/files?path=/'],
  ] as const) {
    const answer = await client.request(method, `/v1/volumes/${rows[0]!.id}${path}`);
    expect([method, path, answer.status]).toEqual([method, path, 404]);
  }
  const mounting = await client.post('/v1/sandboxes', {
    name: 'early',
    image: { type: 'oci', reference: 'busybox' },
    mounts: [named('data-a')],
  });
  expect(mounting.body.error.code).toBe('volume_not_found');
  const more = await client.post('/v1/volumes', { name: 'more', capacity_gib: 1 });
  expect([more.status, more.body.error.details]).toMatchObject([403, { used: 3 }]);
  await setQuotas(service.ctx.pool, client.org.id, { max_total_storage_gib: 10 }, operator('test'));
  const taken = await client.post('/v1/volumes', { name: 'data-a', capacity_gib: 1 });
  expect([taken.status, taken.body.error.code]).toEqual([409, 'volume_already_exists']);
  during = undefined;
  release();
  expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded' });
  expect((await listed(client)).map(({ name }) => name).toSorted()).toEqual(['data', 'data-a', 'data-b']);
});

test('a fork that fails leaves no volume, no name, no data and no usage', async () => {
  const client = await service.newOrg();
  const data = await makeVolume(client, 'data');
  writeFileSync(join(await dataOf(client, data), 'file'), 'x');
  const id = await startSmall(client, 'source', { mounts: [named('data')] });
  const before = kept(client);
  const { volumes } = service.ctx;
  const fill = volumes.fill.bind(volumes);
  let fills = 0;
  volumes.fill = async (...call) => {
    fills += 1;
    await fill(...call);
    if (fills === 2) throw new Error('tar: data/file: Cannot write: No space left on device');
  };
  try {
    const { body } = await fork(client, id, { count: 3 });
    const operation = await forked(client, body.id);
    expect(operation).toMatchObject({ status: 'failed', sandboxes: [] });
    expect(operation['error']).toMatchObject({ code: 'volume_not_copied' });
    expect(operation['error'].message).toContain('do not fit');
    await until(
      () => Promise.resolve(kept(client)),
      (found) => found.join() === before.join(),
    );
  } finally {
    volumes.fill = fill;
  }
  expect((await listed(client)).map(({ name }) => name)).toEqual(['data']);
  expect(await charged(client)).toEqual([]);
  during = ({ orgId }) => {
    if (orgId === client.org.id) throw new CaptureRefusedError('sandbox_changed', 'it was changed');
    return Promise.resolve();
  };
  const second = await fork(client, id, { count: 1 });
  expect((await forked(client, second.body.id))['error'].code).toBe('sandbox_changed');
  during = undefined;
  const { body } = await fork(client, id, { count: 1 });
  expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded' });
  expect((await listed(client)).map(({ name }) => name).toSorted()).toEqual(['data', 'data-source-1']);
  const events = await client.get('/v1/events', { event_type: 'volume_created', limit: 100 });
  expect(events.body.data.map(({ payload }: any) => payload.name).toSorted()).toEqual([
    'data',
    'data-source-1',
    null,
  ]);
});

test('a volume whose sandbox was deleted meanwhile goes with it', async () => {
  const client = await service.newOrg();
  const data = await makeVolume(client, 'data');
  writeFileSync(join(await dataOf(client, data), 'file'), 'x');
  const id = await startSmall(client, 'source', { mounts: [named('data')] });
  const { volumes } = service.ctx;
  const fill = volumes.fill.bind(volumes);
  let ids: string[] = [];
  volumes.fill = async (...call) => {
    await fill(...call);
    for (const copy of ids.splice(0)) await client.delete(`/v1/sandboxes/${copy}`);
  };
  try {
    during = async () =>
      until(
        () => Promise.resolve(ids),
        (found) => found.length > 0,
      ).then(() => undefined);
    const { body } = await fork(client, id, { count: 2 });
    ids = [body.sandboxes[0].id];
    expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded' });
  } finally {
    volumes.fill = fill;
    during = undefined;
  }
  const found = await listed(client);
  expect(found.map(({ name }) => name).toSorted()).toEqual(['data', 'data-source-2']);
  await removeLeftData(service.ctx, new AbortController().signal);
  expect(kept(client)).toEqual(found.map((one) => one.id).toSorted());
});

test('a name that is taken or too long gets a part of the id', async () => {
  const client = await service.newOrg();
  const long = 'v'.repeat(63);
  await makeVolume(client, 'data');
  await makeVolume(client, 'data-source-1');
  await makeVolume(client, long);
  const id = await startSmall(client, 'source', { mounts: [named('data'), named(long, '/long')] });
  const { body } = await fork(client, id, { count: 1 });
  expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded' });
  const names = (await listed(client)).map(({ name }) => name).toSorted();
  expect(names).toEqual([
    'data',
    expect.stringMatching(/^data-[0-9a-f]{12}$/),
    'data-source-1',
    expect.stringMatching(/^v{50}-[0-9a-f]{12}$/),
    long,
  ]);
});

test('copies are refused by their field, and none of them is made', async () => {
  const client = await service.newOrg();
  await makeVolume(client, 'data');
  const host = { type: 'bind', host: 'part', guest: '/host' };
  const ofHost = await startSmall(client, 'of-host', { mounts: [host] });
  const refused = await fork(client, ofHost, { count: 1 });
  expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'volumes' }]);
  expect(refused.body.error.message).toContain('/host');
  const readonly = await startSmall(client, 'readonly', {
    mounts: [{ ...host, options: { readonly: true } }],
  });
  const shared = await fork(client, readonly, { count: 1 });
  expect(shared.status, shared.text).toBe(200);
  await forked(client, shared.body.id);

  const names = Array.from({ length: 2 }, (_, index) => `many-${index}`);
  for (const name of names) await makeVolume(client, name);
  const many = await startSmall(client, 'many', { mounts: names.map((name) => named(name)) });
  const tooMany = await fork(client, many, { count: 51, start: false });
  expect([tooMany.status, tooMany.body.error.details]).toEqual([400, { field: 'volumes' }]);
  expect(tooMany.body.error.message).toContain('100');

  const id = await startSmall(client, 'limited', { mounts: [named('data')] });
  await setQuotas(service.ctx.pool, client.org.id, { max_total_storage_gib: 5 }, operator('test'));
  const uncapped = await fork(client, id, { count: 1 });
  expect([uncapped.status, uncapped.body.error.code]).toEqual([403, 'quota_exceeded']);
  await makeVolume(client, 'capped', { capacity_gib: 2 });
  const capped = await startSmall(client, 'capped', { mounts: [named('capped')] });
  const over = await fork(client, capped, { count: 2 });
  expect([over.status, over.body.error.details]).toMatchObject([
    403,
    { quota: 'max_total_storage_gib', used: 2 },
  ]);
  const { rows } = await service.ctx.pool.query(
    `select 1 from volumes where org_id = $1 and fork_id is not null`,
    [client.org.id],
  );
  expect(rows).toEqual([]);
});

test('a key needs the scope for new volumes, also where the mount is read-only', async () => {
  const client = await service.newOrg();
  await makeVolume(client, 'data');
  const id = await startSmall(client, 'source', {
    mounts: [named('data', '/data', { options: { readonly: true } })],
  });
  const withScopes = async (...scopes: Scope[]) => {
    const { key } = await createKey(service.ctx.pool, client.org.id, scopes.join(), operator('test'), {
      ...FULL_ACCESS,
      scopes,
    });
    return fork(makeClient(service.url, { ...client, key }), id, { count: 1 });
  };
  const refused = await withScopes('sandboxes:write', 'volumes:read');
  expect([refused.status, refused.body.error.code]).toEqual([403, 'insufficient_scope']);
  const made = await withScopes('sandboxes:write', 'volumes:write');
  expect(made.status, made.text).toBe(200);
  expect(await forked(client, made.body.id)).toMatchObject({ status: 'succeeded' });
});
