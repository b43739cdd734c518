import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import type { Pool } from '../../src/db/pool.js';
import { storedImageAccess } from '../../src/registry/stored-access.js';
import type { PullOptions } from '../../src/engine/definition.js';
import { registryReach } from '../../src/settings.js';
import type { DockerOptions } from '../../src/engines/docker/parts.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import type { Client } from './client.js';
import { SOCKET } from './docker.js';
import type { TestOptions, TestService } from './service.js';
import { until } from './polling.js';

/** Options that put a test service on a Docker engine. Default: the engine of the machine. */
export function onDocker(options: Partial<DockerOptions> = {}): Pick<TestOptions, 'runtime'> {
  return {
    runtime: (instanceId, volumes, pool, gateway) =>
      DockerRuntime.connect(instanceId, {
        socketPath: SOCKET,
        network: 'none',
        volumes,
        pulls: pullsFrom(pool),
        gateway,
        ...options,
      }),
  };
}

/** Pulls of the registries of tests, which speak http on a loopback address. */
function pullsFrom(pool: Pool, options: Partial<PullOptions> = {}): PullOptions {
  const reach = registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] });
  return { reach, access: storedImageAccess(pool), maxMib: 1_024, disk: UNCHECKED_DISKS, ...options };
}

/** Destroys the sandboxes of these organizations, and waits until the engine holds nothing of the service. */
export async function destroyAll(service: TestService, ...clients: Client[]): Promise<void> {
  for (const client of clients) {
    for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await client.delete(`/v1/sandboxes/${id}`);
    }
  }
  await until(
    () => service.runtime.list(),
    (held) => held.length === 0,
    30_000,
  );
  // The service keeps snapshots for a day, so that they can be restored.
  const { snapshots } = service.runtime;
  for (const { snapshotId } of (await snapshots?.list()) ?? []) await snapshots!.remove(snapshotId);
}
