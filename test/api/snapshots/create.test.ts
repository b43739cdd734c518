import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { capture, clientDigest, fromSnapshot, startSmall, typesOf } from '../../support/snapshots.js';

const UNKNOWN = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55';

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
});

test('an engine without the ability refuses, and says what to do', async () => {
  const plain = await startForTest();
  const capabilities = new Set([...plain.runtime.capabilities].filter((one) => one !== 'disk_snapshots'));
  Object.assign(plain.runtime, { capabilities });
  const client = await plain.newOrg();
  const id = await startSmall(client, 'plain');
  for (const answer of [
    await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: id, name: 'x' }),
    await client.get('/v1/sandboxes/snapshot-candidates'),
  ]) {
    expect([answer.status, answer.body.error.code]).toEqual([501, 'not_supported']);
  }
  const created = await client.post('/v1/sandboxes', fromSnapshot('x', 'y'));
  expect([created.status, created.body.error.details.field]).toEqual([400, 'image']);
});
