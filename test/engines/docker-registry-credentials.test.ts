import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { untilStatus } from '../support/polling.js';
import { remoteImageOf, serveRegistry, type PrivateRegistry } from '../support/private-registry.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('stored credentials of a registry', () => {
  const credentials = { username: 'puller', password: 'canary-of-the-registry' };
  let service: TestService;
  let client: Client;
  let registry: PrivateRegistry;
  beforeAll(async () => {
    makeImage();
    registry = await serveRegistry(await remoteImageOf(IMAGE), { credentials });
    service = await startTestService({ ...onDocker(), settings: { stopGraceMs: 500 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await registry.close();
  });

  const create = async (name: string, more: Record<string, unknown> = {}) => {
    const request = {
      name,
      image: { type: 'oci', reference: `${registry.host}/team/private:1` },
      pull_policy: 'always',
      runtime: { cmd: ['sleep', '600'] },
      resources: { vcpus: 1, memory_mib: 64 },
      network: { enabled: false },
      ...more,
    };
    return (await client.post('/v1/sandboxes', request, running)).body;
  };
  const store = async (pattern: string, password = credentials.password) =>
    (await client.post('/v1/registry-credentials', { pattern, username: 'puller', password })).body;

  test('pull the images that match, also when the credentials of the create have been deleted', async () => {
    const inline = { registry: { mode: 'inline', ...credentials } };
    const first = await create('first', inline);
    expect(first.status, first.last_failure_message).toBe('running');
    await client.post(`/v1/sandboxes/${first.id}/stop`);
    await untilStatus(client, first.id, 'stopped', 30_000);
    const again = async () =>
      (
        await client.post(`/v1/sandboxes/${first.id}/start`, undefined, {
          wait_for: 'running',
          wait_timeout: 120,
        })
      ).body;
    // The engine loses the image with the container, so the start pulls it again.
    const forget = async () => {
      const filters = { label: [`dev.sandkeep.sandbox=${first.id}`] };
      for (const { Id } of await docker.listContainers({ all: true, filters })) {
        await docker.getContainer(Id).remove({ force: true });
      }
      for (const name of await registry.pulled()) await docker.getImage(name).remove({ force: true });
    };
    await forget();
    expect((await again()).status).toBe('failed');
    const wrong = await store(`${registry.host}/team/private`, 'wrong');
    await store(registry.host);
    expect((await again()).status).toBe('failed');
    await client.patch(`/v1/registry-credentials/${wrong.id}`, { password: credentials.password });
    const started = await again();
    expect(started.status, started.last_failure_message).toBe('running');
  });

  test('are not used by a sandbox that wants none, and are used by their id', async () => {
    const anonymous = await create('anonymous', { registry: { mode: 'anonymous' } });
    expect(anonymous.status).toBe('failed');
    const { data } = (await client.get('/v1/registry-credentials')).body;
    const idOf = (pattern: string) => data.find((one: { pattern: string }) => one.pattern === pattern).id;
    const longest = `/v1/registry-credentials/${idOf(`${registry.host}/team/private`)}`;
    await client.patch(longest, { password: 'wrong' });
    const registrySelection = { mode: 'specific', credential_id: idOf(registry.host) };
    const named = await create('named', { registry: registrySelection });
    expect(named.status, named.last_failure_message).toBe('running');
    await client.patch(longest, { password: credentials.password });
    const auto = await create('auto', { registry: { mode: 'auto' } });
    expect(auto.status, auto.last_failure_message).toBe('running');
  });
});
