import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parsePriceBook } from '../../../src/prices/price-book.js';
import { removeWorker } from '../../../src/sandboxes/reconcile/remove-worker.js';
import { loseSnapshots } from '../../../src/snapshots/purge.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, ended, fromSnapshot, RUNNING, startSmall, typesOf } from '../../support/snapshots.js';

const PRICES = { vcpu_hour: '1', memory_gib_hour: '1', disk_gib_hour: '1', storage_gib_hour: '1' };
const BOOK = parsePriceBook(JSON.stringify({ currency: 'EUR', prices: PRICES }), 'book.json');

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0, priceBook: BOOK } });
});
afterAll(() => service.close());

describe('a snapshot', () => {
  let client: Client;
  let source: string;
  beforeAll(async () => {
    client = await service.newOrg();
    source = await startSmall(client, 'source');
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
    const { result } = await capture(org, await startSmall(org, 'needed'), 'needed');
    const { body: made } = await org.post('/v1/sandboxes', fromSnapshot('needs', 'needed'), RUNNING);
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
    const id = await startSmall(small, 'counted');
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
    const other = await startSmall(fresh, 'too-large');
    await service.ctx.pool.query('update quotas set max_snapshot_gib = 0 where org_id = $1', [fresh.org.id]);
    expect((await capture(fresh, other, 'none'))['error']).toMatchObject({ code: 'quota_exceeded' });
  });
});

test('the removal of a worker ends its snapshots, their usage, and those that are being made', async () => {
  const first = await startForTest({ settings: { stopGraceMs: 0 } });
  const client = await first.newOrg();
  const id = await startSmall(client, 'source');
  const ready = await capture(client, id, 'ready');
  const deleted = await capture(client, id, 'deleted');
  await client.delete(`/v1/snapshots/${deleted['id']}`);
  await first.stopWorker();
  const { body } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'waits' });
  expect(await removeWorker(first.ctx.pool, first.runtime.engineId, loseSnapshots)).toBe(1);
  expect((await client.get('/v1/snapshots', { include: 'deleted' })).body.data).toEqual([]);
  expect((await ended(client, body.id))['error'].code).toBe('engine_failed');
  for (const one of [ready, deleted])
    expect((await typesOf(client, one['id'])).at(-1)).toBe('snapshot_purged');
  expect((await client.get('/v1/quotas')).body.snapshots).toBe(0);
  const { rows } = await first.ctx.pool.query('select from accruals where to_at > now()');
  expect(rows).toEqual([]);
});
