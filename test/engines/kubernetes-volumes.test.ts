import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { filesOf } from '../support/volume-files.js';

const GIB = 1024 ** 3;
const START = { start: true };
const mount = (name: string, guest = '/data', options = {}) => ({ type: 'named', name, guest, options });
const request = (name: string, mounts: unknown[], more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 64 },
  mounts,
  ...more,
});

describeKubernetes('volumes on Kubernetes', () => {
  let namespace: TestNamespace;
  let service: TestService;
  let client: Client;
  let storageClass: string;
  beforeAll(async () => {
    namespace = await openNamespace();
    storageClass = await growingClass();
    service = await startTestService({
      ...namespace.service({ storage: { storageClass, defaultMib: 64, sizes: 'enforced' } }),
      settings: { stopGraceMs: 1_000, volumeSampleMs: 3_000 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await namespace.remove();
    const { library, config } = namespace;
    await config.makeApiClient(library.StorageV1Api).deleteStorageClass({ name: storageClass });
  });

  /** The provisioner of the cluster's default class, which may let volumes grow. */
  async function growingClass(): Promise<string> {
    const { library, config } = namespace;
    const api = config.makeApiClient(library.StorageV1Api);
    const { items } = await api.listStorageClass();
    const isDefault = 'storageclass.kubernetes.io/is-default-class';
    const found = items.find(({ metadata }) => metadata?.annotations?.[isDefault] === 'true');
    expect(found, 'the cluster has no default StorageClass').toBeDefined();
    const { provisioner, parameters, volumeBindingMode } = found!;
    const body = { metadata: { name: namespace.namespace }, provisioner, allowVolumeExpansion: true };
    await api.createStorageClass({
      body: { ...body, volumeBindingMode: volumeBindingMode!, ...(parameters ? { parameters } : {}) },
    });
    return namespace.namespace;
  }

  const claims = async () =>
    (await namespace.core.listNamespacedPersistentVolumeClaim({ namespace: namespace.namespace })).items;
  const claimOf = async (volumeId: string) =>
    (await claims()).find(({ metadata }) => metadata?.name === `sandkeep-volume-${volumeId}`);
  const create = async (name: string, more = {}) =>
    (await client.post('/v1/volumes', { name, ...more })).body.id as string;
  const start = async (name: string, mounts: unknown[], more = {}) => {
    const asked = await client.post('/v1/sandboxes', request(name, mounts, more), START);
    return (await untilRunning(client, asked)).id;
  };
  const sh = async (id: string, script: string) => {
    const { body } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    return body.stdout as string;
  };
  const nodeOf = async (id: string) => (await namespace.podsOf(id))[0]!.spec!.nodeName;

  test('outlive sandboxes, are written by any user, and are deleted at the purge', async () => {
    const volumeId = await create('shared');
    expect(await claims()).toEqual([]);
    const first = await start('first', [mount('shared')], { runtime: { user: '1000:1000' } });
    expect(await sh(first, 'echo kept > /data/file && stat -c %u /data/file')).toBe('1000\n');
    const claim = await claimOf(volumeId);
    expect(claim).toMatchObject({
      metadata: { labels: { 'sandkeep.dev/org': client.org.id, 'sandkeep.dev/volume': volumeId } },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '64Mi' } } },
    });

    const reader = await start('reader', [mount('shared', '/in', { readonly: true })]);
    expect(await sh(reader, 'cat /in/file; echo more >> /in/file || echo refused')).toBe('kept\nrefused\n');
    expect(await nodeOf(reader)).toBe(await nodeOf(first));

    const { body } = await until(
      () => client.get(`/v1/volumes/${volumeId}`),
      ({ body }) => body.used_bytes !== null,
    );
    expect(body.used_bytes).toBe(64 * 1024 * 1024);

    for (const id of [first, reader]) await client.delete(`/v1/sandboxes/${id}`);
    await client.delete(`/v1/volumes/${volumeId}`);
    expect((await client.post(`/v1/volumes/${volumeId}/restore`, {})).status).toBe(200);
    const second = await start('second', [mount('shared', '/a'), mount('shared', '/b')]);
    expect(await sh(second, 'cat /a/file; echo again > /b/file; cat /a/file')).toBe('kept\nagain\n');
    await client.delete(`/v1/sandboxes/${second}`);

    service.ctx.settings.volumePurgeAfterMs = 0;
    await client.delete(`/v1/volumes/${volumeId}`);
    await until(claims, (left) => left.length === 0);
    const { body: usage } = await client.get('/v1/billing/usage/storage');
    expect(usage.rows[0].mib_seconds).toBeGreaterThan(0);
  });

  test('have a size that grows with their cap, and never shrinks', async () => {
    const volumeId = await create('capped', { capacity_gib: 1 });
    const id = await start('grows', [mount('capped')]);
    expect((await claimOf(volumeId))!.spec!.resources!.requests).toEqual({ storage: '1Gi' });
    expect((await client.patch(`/v1/volumes/${volumeId}`, { capacity_gib: 2 })).status).toBe(200);
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    await untilStatus(client, id, 'stopped');
    await untilRunning(client, await client.post(`/v1/sandboxes/${id}/start`, {}));
    expect((await claimOf(volumeId))!.spec!.resources!.requests).toEqual({ storage: '2Gi' });
    const smaller = await until(
      () => client.patch(`/v1/volumes/${volumeId}`, { capacity_gib: 1 }),
      ({ status }) => status !== 200,
    );
    expect([smaller.status, smaller.body.error.details.field]).toEqual([400, 'capacity_gib']);
    const { body } = await until(
      () => client.get(`/v1/volumes/${volumeId}`),
      ({ body }) => body.used_bytes !== null,
    );
    // The growth of this storage is never carried out, and never billed.
    expect(body.used_bytes).toBeLessThanOrEqual(2 * GIB);
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('a sandbox with two volumes of one node has each for itself', async () => {
    await create('one');
    await create('two');
    const both = await start('both', [mount('one', '/1'), mount('two', '/2')]);
    const { body } = await client.post('/v1/sandboxes', request('single', [mount('one')]), { start: true });
    const waiting = await until(
      () => client.get(`/v1/sandboxes/${body.id}`),
      (answer) => answer.body.status_reason === 'insufficient_capacity',
    );
    expect(waiting.body.last_failure_message).toMatch(/nodes are available: .*affinity/);
    await client.delete(`/v1/sandboxes/${both}`);
    await untilStatus(client, body.id, 'running');
    await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('refuse by field what the cluster cannot do', async () => {
    const volumeId = await create('files');
    for (const [mounts, field] of [
      [[{ type: 'bind', host: 'a', guest: '/x' }], 'mounts[0]'],
      [[mount('files', '/x', { noexec: true })], 'mounts[0].options.noexec'],
      [[{ ...mount('files'), stat_virtualization: 'off' }], 'mounts[0].stat_virtualization'],
    ] as const) {
      const { status, body } = await client.post('/v1/sandboxes', request('refused', [...mounts]));
      expect([status, body.error?.details?.field], JSON.stringify(body)).toEqual([400, field]);
    }
    const { status, body } = await filesOf(client, volumeId).list('/');
    expect([status, body.error.code]).toEqual([501, 'not_supported']);
    expect(body.error.message).toContain('mount the volume in a sandbox');
  });
});

describeKubernetes('volumes of a class that does not say whether it enforces sizes', () => {
  test('get no cap', async () => {
    const namespace = await openNamespace();
    const service = await startTestService(namespace.service());
    const client = await service.newOrg();
    const { status, body } = await client.post('/v1/volumes', { name: 'capped', capacity_gib: 1 });
    expect([status, body.error.details.field]).toEqual([400, 'capacity_gib']);
    await service.close();
    await namespace.remove();
  });
});
