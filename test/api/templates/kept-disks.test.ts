import { afterAll, beforeAll, expect, test } from 'vitest';
import { keepLayer } from '../../../src/templates/layer-queries.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { build, BUILDS_MS } from '../../support/templates.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0, volumePurgeAfterMs: 0 } });
});
afterAll(() => service.close());

/** The MiB with which each disk of the organization is charged, the oldest first. */
async function charged({ org }: Client): Promise<string> {
  const { rows } = await service.ctx.pool.query<{ mib: string }>(
    `select string_agg(((size_bytes - shared_bytes) >> 20)::text, ' ' order by created_at) as mib from snapshots
     where org_id = $1 and erased_at is null`,
    [org.id],
  );
  return rows[0]!.mib;
}

test(
  'what templates share is charged once, while one of the disks below is kept',
  async () => {
    const client = await service.newOrg();
    const ids: Record<string, string> = {};
    for (const [name, base] of [
      ['low', 'busybox'],
      ['mid', 'template:low'],
      ['top', 'template:mid'],
    ] as const) {
      const made = await build(client, name, `FROM ${base}\nENV A=1\n`);
      expect(made['error']).toBeNull();
      ids[name] = made['id'];
    }
    // The sizes of simulated disks are alike.
    await service.ctx.pool.query(
      `update snapshots p set size_bytes = v.mib << 20, shared_bytes = v.shared << 20
       from templates t
       join (values ('low', 3, 0), ('mid', 5, 3), ('top', 9, 5)) v (name, mib, shared) on v.name = t.name
       where t.org_id = $1 and p.org_id = t.org_id and p.id = t.snapshot_id`,
      [client.org.id],
    );
    const becomes = async (wanted: string) =>
      until(
        async () => charged(client),
        (mib) => mib === wanted,
        60_000,
      );
    await becomes('3 2 4');
    await client.delete(`/v1/templates/${ids['mid']}`);
    await becomes('3 6');
    // A sandbox keeps the lowest disk, which is charged until then.
    const request = { ...smallRequest('made'), image: { type: 'template', name: 'low' } };
    const { body: made } = await client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
    await client.delete(`/v1/templates/${ids['low']}`);
    await until(
      async () => (await client.get('/v1/events', { event_type: 'snapshot_purged' })).body.data.length,
      (purged) => purged === 2,
      60_000,
    );
    expect(await charged(client)).toBe('3 6');
    await client.delete(`/v1/sandboxes/${made.id}`);
    await becomes('9');
  },
  BUILDS_MS,
);

test('the deletion of a template takes the kept results of the builds that it replaced', async () => {
  const client = await service.newOrg();
  const { ctx } = service;
  const first = await build(client, 'agent', 'FROM busybox\nENV A=1\n');
  const { rows } = await ctx.pool.query<{ worker_id: string; snapshot_id: string }>(
    'select worker_id, snapshot_id from templates where id = $1',
    [first['id']],
  );
  // Nothing runs in simulated sandboxes, so no step of the build has a result.
  const layer = { ...rows[0]!, org_id: client.org.id, digest: 'of-a-step', template_id: first['id'] };
  await keepLayer(ctx.pool, layer, ctx.now());
  const second = await build(client, 'agent', 'FROM busybox\nENV A=2\n');
  expect(await charged(client)).toBe('1 1');
  await client.delete(`/v1/templates/${second['id']}`);
  await until(
    async () => (await client.get('/v1/quotas')).body.snapshots,
    (count) => count === 0,
    30_000,
  );
});
