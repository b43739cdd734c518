import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, fromSnapshot, RUNNING, startSmall } from '../../support/snapshots.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { stopGraceMs: 0 } });
});
afterAll(() => service.close());

describe('a snapshot', () => {
  let client: Client;
  let source: string;
  beforeAll(async () => {
    client = await service.newOrg();
    source = await startSmall(client, 'source');
  });

  test('is the base of sandboxes, by its id or its name, which survive it', async () => {
    const { result } = await capture(client, source, 'base');
    for (const [name, reference] of [
      ['by-id', result.id],
      ['by-name', 'base'],
    ]) {
      const { body, text } = await client.post('/v1/sandboxes', fromSnapshot(name, reference), RUNNING);
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
    const missing = await client.post('/v1/sandboxes', fromSnapshot('late', 'base'), RUNNING);
    expect([missing.status, missing.body.error.code]).toEqual([404, 'snapshot_not_found']);
  });
});

test('a sandbox of a snapshot takes its disk on the engine at its first start', async () => {
  const small = await startForTest({ simulated: { capacity: { diskMib: 1000 } } });
  const client = await small.newOrg();
  const sized = (disk_size_mib: number) => ({ resources: { vcpus: 1, memory_mib: 64, disk_size_mib } });
  const { body: source } = await client.post('/v1/sandboxes', smallRequest('source', sized(100)), RUNNING);
  await capture(client, source.id, 'base');
  const { body: large } = await client.post('/v1/sandboxes', fromSnapshot('large', 'base', sized(1_000_000)));
  expect(large.status).toBe('created');
  const { body: fits, text } = await client.post(
    '/v1/sandboxes',
    fromSnapshot('fits', 'base', sized(800)),
    RUNNING,
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
