import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { CaptureRefusedError, type Capture } from '../../../src/engine/runtime.js';
import { createKey } from '../../../src/keys/create.js';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, clientDigest, ended } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' } as const;
const PRICES = { vcpu_hour: '1', memory_gib_hour: '1', disk_gib_hour: '1', storage_gib_hour: '1' };
const BOOK = parsePriceBook(JSON.stringify({ currency: 'EUR', prices: PRICES }), 'book.json');
const UNKNOWN = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';

let service: TestService;
/** Runs in each capture. */
let during: ((capture: Capture) => Promise<void>) | undefined;
beforeAll(async () => {
  const simulated = { onCapture: async (one: Capture) => during?.(one) };
  service = await startTestService({ simulated, settings: { stopGraceMs: 0, priceBook: BOOK } });
});
afterAll(() => service.close());

async function start(client: Client, name: string, part: Record<string, unknown> = {}): Promise<string> {
  const { body, text } = await client.post('/v1/sandboxes', smallRequest(name, part), running);
  expect(body.status, text).toBe('running');
  return body.id;
}

async function typesOf(client: Client, resource: string): Promise<string[]> {
  const { body } = await client.get('/v1/events', { resource_id: resource, limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
}

const fromSnapshot = (name: string, id: string, part: object = {}) => ({
  source: 'disk_snapshot',
  disk_snapshot_ref: { type: 'managed', id },
  name,
  resources: { vcpus: 1, memory_mib: 64 },
  ...part,
});

describe('a snapshot', () => {
  let client: Client;
  let source: string;
  beforeAll(async () => {
    client = await service.newOrg();
    source = await start(client, 'source');
  });

  test('is made, found by id and name, listed, and has a descriptor that clients can verify', async () => {
    const labels = { '\u{1F600}': 'a', '\uFF5E': 'b', '10': 'c', '9': '"\\\n\u001f\u007f' };
    const operation = await capture(client, source, 'first', { labels, record_integrity: true });
    expect(operation).toMatchObject({ status: 'succeeded', kind: 'disk', error: null, name: 'first' });
    const { result } = operation;
    expect(result.digest).toBe(clientDigest(result.manifest));
    expect(result.manifest).toMatchObject({ source_sandbox: 'source', parent: null, labels });
    for (const path of [result.id, 'by-name/first']) {
      expect((await client.get(`/v1/snapshots/${path}`)).body).toEqual(result);
    }
    const { body } = await client.get('/v1/snapshots', { labels: JSON.stringify({ '10': 'c' }) });
    expect(body).toEqual({ data: [result], has_more: false, next_cursor: null });
    expect((await client.get('/v1/snapshots', { labels: '{"no":"one"}' })).body.data).toEqual([]);
    expect(await typesOf(client, result.id)).toEqual(['snapshot_requested', 'snapshot_created']);
  });

  test('is the base of sandboxes, by its id or its name, which survive it', async () => {
    const { result } = await capture(client, source, 'base');
    for (const [name, reference] of [
      ['by-id', result.id],
      ['by-name', 'base'],
    ]) {
      const { body, text } = await client.post('/v1/sandboxes', fromSnapshot(name, reference), running);
      expect([body.status, body.disk_snapshot_id, body.spec?.image], text).toEqual([
        'running',
        result.id,
        result.manifest.image.ref,
      ]);
    }
    const nested = { ...smallRequest('nested'), image: { type: 'disk_snapshot', id: 'base' } };
    expect((await client.post('/v1/sandboxes', nested)).body.disk_snapshot_id).toBe(result.id);
    const { body: first } = await client.get('/v1/sandboxes/by-name/by-id');
    const child = await capture(client, first.id, 'child');
    expect(child['result'].manifest.parent).toBe(result.digest);
    await client.delete(`/v1/snapshots/${result.id}`);
    await client.post(`/v1/sandboxes/${first.id}/stop`, undefined, { wait_for: 'stopped' });
    const again = await client.post(`/v1/sandboxes/${first.id}/start`, undefined, { wait_for: 'running' });
    expect(again.body.status).toBe('running');
    const missing = await client.post('/v1/sandboxes', fromSnapshot('late', 'base'), running);
    expect([missing.status, missing.body.error.code]).toEqual([404, 'snapshot_not_found']);
  });

  test('has a name of its own, unless it replaces another', async () => {
    const first = await capture(client, source, 'named');
    const request = { kind: 'disk', sandbox_id: source, name: 'named' };
    const taken = await client.post('/v1/snapshots', request);
    expect([taken.status, taken.body.error.code]).toEqual([409, 'snapshot_already_exists']);
    const second = await capture(client, source, 'named', { force: true });
    expect(second['status']).toBe('succeeded');
    expect((await client.get('/v1/snapshots/by-name/named')).body.id).toBe(second['id']);
    expect((await client.get(`/v1/snapshots/${first['id']}`)).body.status).toBe('deleting');
    const restored = await client.post(`/v1/snapshots/${first['id']}/restore`, {});
    expect([restored.status, restored.body.error.code]).toEqual([409, 'snapshot_already_exists']);
    await client.delete('/v1/snapshots/by-name/named');
    expect((await client.post(`/v1/snapshots/${first['id']}/restore`, {})).body.status).toBe('ready');
    expect(await typesOf(client, first['id'])).toEqual([
      'snapshot_requested',
      'snapshot_created',
      'snapshot_deletion_scheduled',
      'snapshot_restored',
    ]);
  });

  test('is refused by its field', async () => {
    const stopped = await client.post('/v1/sandboxes', smallRequest('never-ran'));
    const cases: [object, number, string, string | undefined][] = [
      [{ sandbox_id: UNKNOWN }, 404, 'sandbox_not_found', undefined],
      [{ sandbox_id: stopped.body.id }, 400, 'invalid_request', 'sandbox_id'],
      [{ dest_dir: '/mnt/snapshots' }, 400, 'invalid_request', 'dest_dir'],
      [{ name: '-' }, 400, 'invalid_request', 'name'],
      [{ name: UNKNOWN }, 400, 'invalid_request', 'name'],
      [{ labels: { 'sandbox.x': 'y' } }, 400, 'invalid_request', 'labels.sandbox.x'],
      [{ kind: 'memory' }, 400, 'invalid_request', 'kind'],
    ];
    for (const [part, status, code, field] of cases) {
      const answer = await client.post('/v1/snapshots', {
        kind: 'disk',
        sandbox_id: source,
        name: 'wrong',
        ...part,
      });
      expect([answer.status, answer.body.error.code, answer.body.error.details?.field], answer.text).toEqual([
        status,
        code,
        field,
      ]);
    }
    const host = { ...fromSnapshot('host', 'x'), disk_snapshot_ref: { type: 'host_volume', path: '/x' } };
    const refused = await client.post('/v1/sandboxes', host);
    expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'disk_snapshot_ref' }]);
    const pool = { image: { type: 'disk_snapshot', id: 'first' }, size: 1 };
    const pooled = await client.request('PUT', '/v1/pools/of-snapshot', { body: pool });
    expect([pooled.status, pooled.body.error.details]).toEqual([400, { field: 'image.type' }]);
  });

  test('is charged from its completion to its deletion', async () => {
    const { result } = await capture(client, source, 'charged');
    const rows = async () =>
      (
        await service.ctx.pool.query<{ used_mib: string; open: boolean }>(
          'select used_mib::text, to_at > now() as open from accruals where volume_id = $1',
          [result.id],
        )
      ).rows;
    expect(await rows()).toEqual([{ used_mib: '1.0000000000', open: true }]);
    await client.delete('/v1/snapshots/by-name/charged');
    expect(await rows()).toEqual([{ used_mib: '1.0000000000', open: false }]);
    const { body } = await client.get('/v1/billing/usage/storage');
    expect(body.volumes).toContainEqual({ id: result.id, name: 'charged' });
    // A report of charges needs whole days.
    await service.ctx.pool.query(
      `update accruals set from_at = from_at - interval '1 day', to_at = to_at - interval '1 day' where volume_id = $1`,
      [result.id],
    );
    const [since, until] = [2, 0].map((days) => new Date(Date.now() - days * 86_400_000).toISOString());
    const range = { since: since!.slice(0, 10), until: until!.slice(0, 10) };
    const focus = await client.get('/v1/billing/usage/storage', { format: 'focus', ...range });
    const line = focus.text.split('\n').find((one) => one.includes(result.id));
    expect(line).toContain('of a snapshot');
    expect(line).toContain(',Snapshot,');
  });

  test('is counted and charged after its purge, as long as a sandbox needs its data', async () => {
    const org = await service.newOrg();
    const { result } = await capture(org, await start(org, 'needed'), 'needed');
    const { body: made } = await org.post('/v1/sandboxes', fromSnapshot('needs', 'needed'), running);
    await org.delete('/v1/snapshots/by-name/needed');
    await service.ctx.pool.query('update snapshots set purge_at = now() where id = $1', [result.id]);
    await until(
      async () => typesOf(org, result.id),
      (types) => types.includes('snapshot_purged'),
    );
    expect((await org.get('/v1/quotas')).body.snapshots).toBe(1);
    const isOpen = async () =>
      (
        await service.ctx.pool.query<{ open: boolean }>(
          'select coalesce(bool_or(to_at > now()), false) as open from accruals where volume_id = $1',
          [result.id],
        )
      ).rows[0]!.open;
    await until(isOpen, (open) => open, 30_000);
    await org.delete(`/v1/sandboxes/${made.id}`);
    await until(isOpen, (open) => !open, 30_000);
    await until(
      async () => (await org.get('/v1/quotas')).body.snapshots,
      (count) => count === 0,
      30_000,
    );
  });

  test('counts in the quotas by number and by bytes', async () => {
    const small = await service.newOrg();
    const id = await start(small, 'counted');
    const limit = async (text: string) =>
      service.ctx.pool.query(`update quotas set ${text} where org_id = $1`, [small.org.id]);
    await limit('max_snapshots = 1');
    expect((await capture(small, id, 'one'))['status']).toBe('succeeded');
    const refused = await small.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'two' });
    expect([refused.status, refused.body.error.code, refused.body.error.details.quota]).toEqual([
      403,
      'quota_exceeded',
      'max_snapshots',
    ]);
    await limit('max_snapshots = null, max_snapshot_gib = 0');
    const full = await small.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'two' });
    expect(full.body.error.details.quota).toBe('max_snapshot_gib');
    const { body } = await small.get('/v1/quotas');
    expect([body.snapshots, body.snapshot_gib_used]).toEqual([1, 1 / 1024]);
    await limit('max_snapshot_gib = null, is_suspended = true');
    const suspended = await small.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'two' });
    expect(suspended.body.error.details.quota).toBe('is_suspended');
    const fresh = await service.newOrg();
    const other = await start(fresh, 'too-large');
    await service.ctx.pool.query('update quotas set max_snapshot_gib = 0 where org_id = $1', [fresh.org.id]);
    expect((await capture(fresh, other, 'none'))['error']).toMatchObject({ code: 'quota_exceeded' });
  });
});

test('an operation ends as failed with the reason, and its name is free again', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'fails');
  during = async ({ orgId }) => {
    if (orgId === client.org.id) throw new CaptureRefusedError('sandbox_changed', 'it was changed');
    return Promise.resolve();
  };
  const operation = await capture(client, id, 'again');
  during = undefined;
  expect([operation['status'], operation['error'], operation['result']]).toEqual([
    'failed',
    { code: 'sandbox_changed', message: 'it was changed' },
    null,
  ]);
  expect((await client.get(`/v1/snapshots/${operation['id']}`)).body.error.code).toBe('snapshot_not_found');
  expect(await typesOf(client, operation['id'])).toEqual(['snapshot_requested', 'snapshot_failed']);
  expect((await capture(client, id, 'again'))['status']).toBe('succeeded');
});

test('an error of the engine is tried again', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'retried');
  let failures = 0;
  during = async ({ orgId }) => {
    if (orgId !== client.org.id) return;
    failures += 1;
    if (failures === 1) throw new Error('the engine does not answer');
  };
  const operation = await capture(client, id, 'retried');
  during = undefined;
  expect([operation['status'], failures]).toEqual(['succeeded', 2]);
});

test('a deletion cancels an operation, and nothing of it stays in the engine', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'cancelled');
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  const { body } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'cancelled' });
  await until(
    async () => (await client.get(`/v1/snapshot-operations/${body.id}`)).body.status,
    (status) => status === 'in_progress',
  );
  expect((await client.delete(`/v1/snapshots/${body.id}`)).status).toBe(200);
  release();
  during = undefined;
  expect((await ended(client, body.id))['error'].code).toBe('cancelled');
  await until(
    async () => (await service.runtime.snapshots!.list()).map(({ snapshotId }) => snapshotId),
    (ids) => !ids.includes(body.id),
    30_000,
  );
});

test('a capture of one organization does not stop those of others', async () => {
  const [slow, quick] = [await service.newOrg(), await service.newOrg()];
  const [one, other] = [await start(slow, 'slow'), await start(quick, 'quick')];
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === slow.org.id ? held : undefined);
  const ids: string[] = [];
  for (const name of ['a', 'b', 'c']) {
    ids.push((await slow.post('/v1/snapshots', { kind: 'disk', sandbox_id: one, name })).body.id);
  }
  expect((await capture(quick, other, 'between'))['status']).toBe('succeeded');
  const statuses = await Promise.all(
    ids.map(async (id) => (await slow.get(`/v1/snapshot-operations/${id}`)).body.status),
  );
  expect(statuses).toEqual(['in_progress', 'queued', 'queued']);
  release();
  during = undefined;
  for (const id of ids) expect((await ended(slow, id))['status']).toBe('succeeded');
});

test('organizations have their turns, and a sandbox that does not start blocks no other', async () => {
  const full = await startForTest({
    simulated: { capacity: { vcpus: 5 }, onCapture: async (one) => during?.(one) },
  });
  const orgs: Client[] = [await full.newOrg(), await full.newOrg(), await full.newOrg()];
  const begun: string[] = [];
  const releases: (() => void)[] = [];
  during = async ({ snapshotId }) => {
    begun.push(snapshotId);
    return new Promise<void>((resolve) => releases.push(resolve));
  };
  const ids: string[] = [];
  const ask = async (client: Client, sandbox_id: string, name: string) => {
    const { body, text } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id, name });
    expect(body.status, text).toBe('queued');
    ids.push(body.id);
  };
  const sandboxes: string[] = [];
  for (const [index, client] of orgs.entries()) sandboxes.push(await start(client, `turn-${index}`));
  const [a, b, c] = orgs as [Client, Client, Client];
  const { body: stopped } = await a.post(
    '/v1/sandboxes',
    smallRequest('stopped', { resources: { vcpus: 2, memory_mib: 64 } }),
    running,
  );
  await a.post(`/v1/sandboxes/${stopped.id}/stop`, undefined, { wait_for: 'stopped' });
  await start(a, 'filler', { resources: { vcpus: 2, memory_mib: 64 } });
  await ask(a, sandboxes[0]!, 'a1');
  await ask(b, sandboxes[1]!, 'b1');
  await until(
    async () => Promise.resolve(begun.length),
    (length) => length === 2,
  );
  await ask(a, stopped.id, 'a-starts');
  await ask(a, sandboxes[0]!, 'a2');
  await ask(b, sandboxes[1]!, 'b2');
  await a.post(`/v1/sandboxes/${stopped.id}/start`);
  await ask(c, sandboxes[2]!, 'c1');
  const names = () => begun.map((id) => ['a1', 'b1', 'a-starts', 'a2', 'b2', 'c1'][ids.indexOf(id)]);
  for (const [count, ended, last] of [
    [3, 1, 'c1'],
    [4, 0, 'a2'],
  ] as const) {
    releases[begun.indexOf(ids[ended]!)]!();
    await until(
      async () => Promise.resolve(begun.length),
      (length) => length >= count,
      20_000,
    );
    expect(names().at(-1)).toBe(last);
  }
  during = undefined;
  for (const release of releases) release();
});

test('a key that is narrowed to labels sees the snapshots with them, and makes such', async () => {
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

test('a replacement ends as failed when another snapshot has taken the name meanwhile', async () => {
  const client = await service.newOrg();
  const id = await start(client, 'raced');
  const first = await capture(client, id, 'raced');
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  const request = { kind: 'disk', sandbox_id: id, name: 'raced' };
  const { body } = await client.post('/v1/snapshots', { ...request, force: true });
  await client.delete(`/v1/snapshots/${first['id']}`);
  const { body: other } = await client.post('/v1/snapshots', { ...request, name: 'other' });
  // As a key of another team would have made it, and no replacement may delete that one.
  await service.ctx.pool.query(
    `update snapshots set name = 'raced', status = 'ready', size_bytes = 1, digest = 'd', content_digest = 'd',
       completed_at = now() where id = $1`,
    [other.id],
  );
  release();
  during = undefined;
  expect((await ended(client, body.id))['error'].code).toBe('snapshot_already_exists');
  expect((await client.get(`/v1/snapshots/by-name/raced`)).body.id).toBe(other.id);
});

test('pages list snapshots, operations and candidates from the newest to the oldest', async () => {
  const client = await service.newOrg();
  for (const name of ['a', 'b', 'c']) await capture(client, await start(client, name), `of-${name}`);
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

test('a sandbox of a snapshot takes its disk on the engine at its first start', async () => {
  const small = await startForTest({ simulated: { capacity: { diskMib: 1000 } } });
  const client = await small.newOrg();
  const sized = (disk_size_mib: number) => ({ resources: { vcpus: 1, memory_mib: 64, disk_size_mib } });
  const { body: source } = await client.post('/v1/sandboxes', smallRequest('source', sized(100)), running);
  await capture(client, source.id, 'base');
  const { body: large } = await client.post('/v1/sandboxes', fromSnapshot('large', 'base', sized(1_000_000)));
  expect(large.status).toBe('created');
  const { body: fits, text } = await client.post(
    '/v1/sandboxes',
    fromSnapshot('fits', 'base', sized(800)),
    running,
  );
  expect(fits.status, text).toBe('running');
  const { body: waits } = await client.post('/v1/sandboxes', fromSnapshot('waits', 'base', sized(200)), {
    start: true,
  });
  await until(
    async () => (await client.get('/v1/sandboxes/by-name/waits')).body.status_reason,
    (reason) => reason === 'insufficient_capacity',
  );
  // A later start does not overtake it.
  await client.delete(`/v1/sandboxes/${waits.id}`);
  await client.post(`/v1/sandboxes/${fits.id}/stop`, undefined, { wait_for: 'stopped' });
  const again = await client.post(`/v1/sandboxes/${fits.id}/start`, undefined, { wait_for: 'running' });
  expect(again.body.status, again.text).toBe('running');
});

test('an engine without the ability refuses, and says what to do', async () => {
  const plain = await startForTest();
  const capabilities = new Set([...plain.runtime.capabilities].filter((one) => one !== 'disk_snapshots'));
  Object.assign(plain.runtime, { capabilities });
  const client = await plain.newOrg();
  const id = await start(client, 'plain');
  for (const answer of [
    await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'x' }),
    await client.get('/v1/sandboxes/snapshot-candidates'),
  ]) {
    expect([answer.status, answer.body.error.code]).toEqual([501, 'not_supported']);
  }
  const created = await client.post('/v1/sandboxes', fromSnapshot('x', 'y'));
  expect([created.status, created.body.error.details.field]).toEqual([400, 'image']);
});
