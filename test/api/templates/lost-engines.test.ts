import { expect, test } from 'vitest';
import { addMillis } from '../../../src/lib/instant.js';
import { newId } from '../../../src/lib/uuid.js';
import { removeWorker } from '../../../src/sandboxes/reconcile/remove-worker.js';
import { keepLayer } from '../../../src/templates/layer-queries.js';
import { loseDisks } from '../../../src/templates/lose.js';
import type { Client } from '../../support/client.js';
import { startForTest, type TestService } from '../../support/service.js';
import { build, endedBuild, requestBuild } from '../../support/templates.js';

const SIMPLE = 'FROM busybox\nENV A=1\n';

async function typesOf(client: Client, id: string): Promise<string[]> {
  const { body } = await client.get('/v1/events', { resource_id: id, limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
}

/** A service without a worker on its engine, and a build that waits and one that was interrupted there. */
async function startAway(): Promise<{
  service: TestService;
  client: Client;
  built: string;
  queued: string;
  building: string;
}> {
  const service = await startForTest({ settings: { stopGraceMs: 0, volumePurgeAfterMs: 0 } });
  const client = await service.newOrg();
  const { id: built } = await build(client, 'built:1', SIMPLE);
  await service.stopWorker();
  const [queued, building] = [
    (await requestBuild(client, 'queued:1', SIMPLE)).body.id as string,
    (await requestBuild(client, 'building:1', SIMPLE)).body.id as string,
  ];
  await service.ctx.pool.query(
    `update templates set status = 'building', started_at = $2, sandbox_id = $3 where id = $1`,
    [building, service.ctx.now(), newId()],
  );
  return { service, client, built: built as string, queued, building };
}

test('the removal of a worker ends its builds, and deletes its templates and results', async () => {
  const { service, client, built, queued, building } = await startAway();
  const { pool, now } = service.ctx;
  const { engineId } = service.runtime;
  const layer = {
    org_id: client.org.id,
    worker_id: engineId,
    digest: 'x',
    snapshot_id: newId(),
    template_id: built,
  };
  await keepLayer(pool, layer, now());
  expect(await removeWorker(pool, engineId, loseDisks)).toBeDefined();
  expect((await client.get(`/v1/templates/${built}`)).status).toBe(404);
  expect((await typesOf(client, built)).at(-1)).toBe('template_deleted');
  for (const id of [queued, building]) {
    expect((await client.get(`/v1/templates/${id}`)).body).toMatchObject({
      status: 'failed',
      error: { code: 'engine_failed' },
      sandbox_id: null,
    });
    expect(await typesOf(client, id)).toEqual(['template_build_requested', 'template_build_failed']);
  }
  expect((await client.get('/v1/quotas')).body.snapshots).toBe(0);
  expect((await pool.query('select from template_layers')).rows).toEqual([]);
});

test('builds whose engine has no process end when their time is over', async () => {
  const { service, client, queued, building } = await startAway();
  const { pool, now } = service.ctx;
  const before = addMillis(now(), -62 * 60_000);
  await pool.query('update workers set expires_at = $1', [before]);
  const recent = (await requestBuild(client, 'recent:1', SIMPLE)).body.id as string;
  await pool.query('update templates set created_at = $2, started_at = $2 where id = any ($1)', [
    [queued, building],
    before,
  ]);
  // A process with another engine.
  await startForTest({ beside: service });
  expect((await endedBuild(client, queued))['error']).toMatchObject({ code: 'engine_failed' });
  expect((await endedBuild(client, building))['error']).toMatchObject({ code: 'timed_out' });
  expect((await client.get(`/v1/templates/${recent}`)).body.status).toBe('queued');
});
