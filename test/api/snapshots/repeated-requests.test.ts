import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { TEXT_ARCHIVE } from '../../support/snapshot-archives.js';
import { capture, ended, forked } from '../../support/snapshots.js';

let service: TestService;
let client: Client;
let source: string;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('source'), {
    start: true,
    wait_for: 'running',
  });
  source = body.id;
});
afterAll(() => service.close());

/** A new snapshot, and the request that is repeated. */
const WRITES: Record<string, (id: string, name: string) => { method: string; path: string; body?: unknown }> =
  {
    create_snapshot: (_, name) => ({
      method: 'POST',
      path: '/v1/snapshots',
      body: { kind: 'disk', sandbox_id: source, name: `${name}-made` },
    }),
    delete_snapshot: (id) => ({ method: 'DELETE', path: `/v1/snapshots/${id}` }),
    delete_snapshot_by_name: (_, name) => ({ method: 'DELETE', path: `/v1/snapshots/by-name/${name}` }),
    import_snapshot: (_, name) => ({
      method: 'POST',
      path: `/v1/snapshots/import?name=${name}-imported`,
      body: TEXT_ARCHIVE,
    }),
    restore_snapshot: (id) => ({ method: 'POST', path: `/v1/snapshots/${id}/restore` }),
    fork_sandbox: () => ({
      method: 'POST',
      path: `/v1/sandboxes/${source}/fork`,
      body: { count: 2, start: false },
    }),
    fork_by_name: () => ({
      method: 'POST',
      path: '/v1/sandboxes/by-name/source/fork',
      body: { count: 2, start: false },
    }),
  };

async function eventCount(): Promise<number> {
  return (await client.get('/v1/events', { limit: 100 })).body.data.length;
}

test.each(Object.keys(WRITES))('%s with a key is executed once', async (operation) => {
  const name = operation.replaceAll('_', '-');
  const { result } = await capture(client, source, name);
  if (operation === 'restore_snapshot') await client.delete(`/v1/snapshots/${result.id}`);
  const { method, path, body } = WRITES[operation]!(result.id, name);
  const send = () => client.request(method, path, { body, headers: { 'idempotency-key': operation } });
  const before = await eventCount();
  const first = await send();
  expect(first.status, first.text).toBe(200);
  // The worker's events of the capture are there.
  if (operation === 'create_snapshot')
    expect(await ended(client, first.body.id)).toMatchObject({ error: null });
  if (operation.startsWith('fork')) {
    const { error, sandboxes } = await forked(client, first.body.id);
    expect([error, sandboxes.length]).toEqual([null, 2]);
  }
  const after = await eventCount();
  expect(after).toBeGreaterThan(before);
  for (let again = 0; again < 3; again += 1) {
    const repeated = await send();
    expect([repeated.status, repeated.text]).toEqual([200, first.text]);
    expect(repeated.headers.get('idempotency-replayed')).toBe('true');
  }
  expect(await eventCount()).toBe(after);
});
