import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import {
  configOf,
  layerOf,
  remoteImage,
  remoteImageOf,
  serveRegistry,
  type PrivateRegistry,
} from '../support/private-registry.js';
import { startTestService, type TestService } from '../support/service.js';
import { until, untilStatus } from '../support/polling.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('runs of docker sandboxes', () => {
  let service: TestService;
  let client: Client;
  let registry: PrivateRegistry;
  const credentials = { username: 'puller', password: 'canary-of-the-registry' };
  beforeAll(async () => {
    makeImage();
    registry = await serveRegistry(await remoteImageOf(IMAGE), { credentials });
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 2 } }),
      settings: { stopGraceMs: 500 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await registry.close();
  });

  const request = (name: string, more: Record<string, unknown> = {}) => ({
    name,
    image: { type: 'oci', reference: IMAGE },
    pull_policy: 'never',
    resources: { vcpus: 1, memory_mib: 64 },
    network: { enabled: false },
    ...more,
  });
  const sleeps = { runtime: { cmd: ['sleep', '600'] } };

  test('end after their idle timeout, and not earlier', async () => {
    const lifecycle = { idle_timeout_secs: 3 };
    const idle = await client.post('/v1/sandboxes', request('idle', { ...sleeps, lifecycle }), running);
    const cmd = ['sh', '-c', 'while :; do :; done'];
    const busy = await client.post(
      '/v1/sandboxes',
      request('busy', { runtime: { cmd }, lifecycle }),
      running,
    );
    const { body: ended } = await untilStatus(client, idle.body.id, 'stopped', 15_000);
    expect(Date.parse(ended.stopped_at) - Date.parse(ended.started_at)).toBeGreaterThanOrEqual(3_000);
    expect((await client.get(`/v1/sandboxes/${busy.body.id}`)).body.status).toBe('running');
    const events = await client.get('/v1/events', { resource_id: idle.body.id, limit: 1 });
    expect(events.body.data[0].payload.reason).toBe('idle_timeout');
    await client.delete(`/v1/sandboxes/${busy.body.id}`);
  });

  test('wait for capacity of the machine', async () => {
    const [a, b] = await Promise.all(
      ['a', 'b'].map((name) => client.post('/v1/sandboxes', request(name, sleeps), running)),
    );
    const waits = await client.post('/v1/sandboxes', request('waits', sleeps), { start: true });
    const { body: waiting } = await until(
      () => client.get(`/v1/sandboxes/${waits.body.id}`),
      ({ body }) => body.status_reason === 'insufficient_capacity',
    );
    expect(waiting.status).toBe('starting');
    await client.delete(`/v1/sandboxes/${a!.body.id}`);
    await untilStatus(client, waits.body.id, 'running', 15_000);
    for (const { body } of [b!, waits]) await client.delete(`/v1/sandboxes/${body.id}`);
  });

  test('pull a private image with the credentials of their create, which are not stored afterwards', async () => {
    const reference = `${registry.host}/team/private:1`;
    const from = (name: string, more: Record<string, unknown>) =>
      request(name, { image: { type: 'oci', reference }, pull_policy: 'always', ...sleeps, ...more });
    const create = async (name: string, more: Record<string, unknown>) =>
      (await client.post('/v1/sandboxes', from(name, more), running)).body;
    const without = await create('without', {});
    expect([without.status, without.last_failure_message]).toEqual([
      'failed',
      expect.stringContaining(reference),
    ]);
    const wrong = await create('wrong', { registry: { mode: 'inline', ...credentials, password: 'no' } });
    expect(wrong.status).toBe('failed');
    const right = await create('right', { registry: { mode: 'inline', ...credentials } });
    expect([right.status, right.last_failure_message]).toEqual(['running', null]);
    expect(registry.logins.length).toBeGreaterThan(0);
    const { rows } = await service.ctx.pool.query('select from sandbox_secrets where sandbox_id = $1', [
      right.id,
    ]);
    expect(rows).toEqual([]);
    const everything = [...service.logs, JSON.stringify([without, wrong, right])].join('\n');
    expect(everything).not.toContain(credentials.password);
    // Nothing of the registry or the engine is in the message.
    expect(without.last_failure_message).toBe(
      `the image ${reference} cannot be pulled: the registry has no such repository, or requires credentials`,
    );
    const other = await service.newOrg();
    for (const pull_policy of ['if_missing', 'never']) {
      const { body } = await other.post('/v1/sandboxes', from(pull_policy, { pull_policy }), running);
      expect(body.status).toBe('failed');
    }
    const own = await create('again', { pull_policy: 'never' });
    expect(own.status).toBe('running');
    const stored = await service.ctx.pool.query('select org_id, reference, digest from image_access');
    expect(stored.rows).toEqual([{ org_id: client.org.id, reference, digest: registry.image.digest }]);
    await destroyAll(service, client, other);
  });

  test('have no labels of a pulled image, which other programs on the machine could obey', async () => {
    const layer = await layerOf({ 'file-of-labels': 'x' });
    const Labels = { 'traefik.enable': 'true', 'dev.sandkeep.holder-of': 'x', 'dev.sandkeep.org': 'y' };
    const labelled = await serveRegistry(
      remoteImage(configOf([layer], { config: { Labels } }), [gzipSync(layer)]),
    );
    try {
      const image = { type: 'oci', reference: `${labelled.host}/team/labelled:1` };
      const spec = request('labelled', { image, pull_policy: 'if_missing', labels: { own: 'label' } });
      const { body, text } = await client.post('/v1/sandboxes', spec, running);
      expect(body.status, text).toBe('running');
      const [found] = await docker.listContainers({
        filters: { label: [`dev.sandkeep.sandbox=${body.id}`] },
      });
      const said = Object.entries(found!.Labels).filter(([, value]) => value !== '');
      expect(Object.fromEntries(said)).toEqual({
        'dev.sandkeep.image': expect.stringMatching(/^sha256:/),
        'dev.sandkeep.instance': expect.any(String),
        'dev.sandkeep.label.own': 'label',
        'dev.sandkeep.org': client.org.id,
        'dev.sandkeep.run': expect.any(String),
        'dev.sandkeep.sandbox': body.id,
      });
      await destroyAll(service, client);
    } finally {
      await labelled.close();
    }
  });
});
