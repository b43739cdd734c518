import { afterAll, beforeAll, expect, test } from 'vitest';
import { announceChange } from '../../../src/db/changes.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const running = { start: true, wait_for: 'running' } as const;
const { name: _, ...small } = smallRequest('x');

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

const put = async (client: Client, size: number, name = 'small') =>
  client.request('PUT', `/v1/pools/${name}`, { body: { ...small, size } });
const shown = async (client: Client) => (await client.get('/v1/pools/small')).body;
const sql = async (text: string, ...values: unknown[]) => service.ctx.pool.query(text, values);

async function filled(size: number) {
  const client = await service.newOrg();
  expect((await put(client, size)).status).toBe(200);
  const { sandboxes } = await until(
    () => shown(client),
    ({ ready }) => ready === size,
  );
  return { client, ids: sandboxes.map(({ id }: { id: string }) => id) as string[] };
}

test('a run that gets a later end while its end is decided goes on', async () => {
  const { client, ids } = await filled(1);
  const [id] = ids;
  const holder = await service.ctx.pool.connect();
  try {
    await holder.query('begin');
    await holder.query('select from sandboxes where id = $1 for update', [id]);
    await sql('update runs set max_duration_secs = 1 where sandbox_id = $1', id);
    await sql("update runs set started_at = started_at - interval '5 s' where sandbox_id = $1", id);
    await announceChange(service.ctx.pool, id!);
    const waiting = async () =>
      sql("select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'");
    await until(waiting, ({ rows }) => rows.length > 0);
    await holder.query('update runs set max_duration_secs = 9999 where sandbox_id = $1', [id]);
    await holder.query('commit');
  } finally {
    holder.release();
  }
  const { body } = await client.post('/v1/sandboxes', smallRequest('mine'), running);
  expect([body.id, body.source.start, body.status]).toEqual([id, 'warm', 'running']);
});

test('a create waits for a ready sandbox that is locked for a moment', async () => {
  const { client, ids } = await filled(1);
  const holder = await service.ctx.pool.connect();
  await holder.query('begin');
  await holder.query('select from sandboxes where id = $1 for update', [ids[0]]);
  const creating = client.post('/v1/sandboxes', smallRequest('mine'), running);
  // A create that is slower finds it unlocked.
  await sleep(100);
  await holder.query('commit');
  holder.release();
  const { body } = await creating;
  expect([body.id, body.source.start]).toEqual([ids[0], 'warm']);
});

test('a create does not wait long for a ready sandbox that stays locked', async () => {
  const { client, ids } = await filled(1);
  const holder = await service.ctx.pool.connect();
  await holder.query('begin');
  await holder.query('select from sandboxes where id = $1 for update', [ids[0]]);
  const { body } = await client.post('/v1/sandboxes', smallRequest('mine'), running);
  await holder.query('rollback');
  holder.release();
  expect([body.status, body.source.reason]).toEqual(['running', 'none_ready']);
});

test('no create takes a sandbox that is close to its end', async () => {
  const { client, ids } = await filled(1);
  await sql(
    "update runs set max_duration_secs = 3600, started_at = started_at - interval '3570 s' where sandbox_id = $1",
    ids[0],
  );
  const { body } = await client.post('/v1/sandboxes', smallRequest('mine'), running);
  expect(body.source).toMatchObject({ start: 'cold', reason: 'none_ready' });
});

test('a pool that cannot be refilled waits, and others are filled', async () => {
  const { client } = await filled(0);
  await sql(`update pools set request = '{}', size = 1 where org_id = $1`, client.org.id);
  await filled(1);
  const { last_failure_message: message } = await until(
    () => shown(client),
    (pool) => pool.last_failure_message !== null,
  );
  expect(message).toMatch(/^the pool could not be refilled/);
});

test('an unknown digest replaces nothing, and one that moves again soon makes a pause', async () => {
  const { client, ids } = await filled(2);
  await sql("update sandboxes set image_digest = 'sha256:a' where id = $1", ids[0]);
  const known = await until(
    () => shown(client),
    (pool) => pool.image_digest === 'sha256:a',
  );
  expect(known.ready).toBe(2);
  await sql("update pools set image_moved_at = now() - interval '60 s' where org_id = $1", client.org.id);
  await sql(
    "update sandboxes set image_digest = 'sha256:b', started_at = started_at + interval '1 s' where id = $1",
    ids[1],
  );
  const moved = await until(
    () => shown(client),
    (pool) => pool.image_digest === 'sha256:b',
  );
  expect(moved.last_failure_message).toMatch(/different digests/);
  expect(moved.sandboxes.map(({ id }: { id: string }) => id)).toEqual([ids[1]]);
  const { rows } = await sql(
    "select next_refill_at > now() + interval '60 s' as waits from pools where org_id = $1",
    client.org.id,
  );
  expect(rows).toEqual([{ waits: true }]);
});

test('the same PUT again ends the pause, without an event', async () => {
  const { client } = await filled(0);
  await sql(
    `update pools set size = 1, failures = 9, last_failure_message = 'no', next_refill_at = now() + interval '1 h'
     where org_id = $1`,
    client.org.id,
  );
  expect((await put(client, 1)).body.last_failure_message).toBeNull();
  await until(
    () => shown(client),
    ({ ready }) => ready === 1,
  );
  expect((await client.get('/v1/events', { event_type: 'pool_changed' })).body.data).toEqual([]);
});

test('requests at once make no more pools than an organization may have', async () => {
  const client = await service.newOrg();
  await Promise.all(Array.from({ length: 58 }, async (_one, index) => put(client, 0, `pool-${index}`)));
  const { rows } = await sql('select count(*)::int as count from pools where org_id = $1', client.org.id);
  expect(rows).toEqual([{ count: 50 }]);
});
