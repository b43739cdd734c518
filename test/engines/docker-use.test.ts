import Docker from 'dockerode';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readControlGroups } from '../../src/engines/docker/control-group-use.js';
import { measureUse } from '../../src/engines/docker/measure-use.js';
import type { Client } from '../support/client.js';
import { end, PUBLIC, startWith } from '../support/docker-network.js';
import { containerOf, describeDocker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { until } from '../support/polling.js';
import type { TestService } from '../support/service.js';

const MIB = 1024 ** 2;

describeDocker('the use of a container', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startWith({});
    client = await service.newOrg();
  });
  afterAll(() => end(service, client));

  test('is its processor time, memory, disk, network and processes, as its kernel counts them', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      { name: 'used', image: { type: 'oci', reference: IMAGE }, resources: { memory_mib: 256 } },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    const metrics = async () => (await client.get(`/v1/sandboxes/${body.id}/metrics`)).body;
    const before = await until(metrics, ({ current }) => current !== null);
    const sentBefore = before.current.net_tx_bytes;
    // Memory is kept in a tmpfs, so that it is not a cache that the kernel can drop.
    await execIn(body.id, 'sh', '-c', 'busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=32');
    await execIn(body.id, 'sh', '-c', 'busybox dd if=/dev/zero of=/held bs=1M count=16 conv=fsync');
    await execIn(body.id, 'sh', '-c', `busybox nc -w 2 ${PUBLIC} 9 < /dev/null`);
    void execIn(body.id, 'sh', '-c', 'while :; do :; done').catch(() => undefined);
    const used = await until(
      metrics,
      ({ current }) =>
        current.cpu_percent > 5 &&
        current.processes >= 2 &&
        current.disk_bytes !== null &&
        current.net_tx_bytes > sentBefore,
    );
    expect(used).toMatchObject({ memory_limit_bytes: 256 * MIB, cpu_limit_percent: 100 });
    const { current } = used;
    expect(current.memory_bytes - before.current.memory_bytes).toBeGreaterThan(31 * MIB);
    expect(current.memory_bytes).toBeLessThan(256 * MIB);
    expect(current.disk_write_bytes).toBeGreaterThanOrEqual(16 * MIB);
    // The next walk comes a minute after the first one.
    expect(current.disk_bytes).toBeLessThan(64 * MIB);
    expect(await service.runtime.diskUse(body.id)).toBeGreaterThanOrEqual(16 * MIB);
    expect(current.net_rx_bytes).toBeGreaterThanOrEqual(0);

    // The engine says the same where this process cannot see the control groups.
    const docker = new Docker({ socketPath: SOCKET });
    const { Id, State } = await (await containerOf(body.id))!.inspect();
    const [read, asked] = [
      await readControlGroups(Id, State.Pid),
      (await measureUse(docker, [{ id: Id, sandboxId: body.id, pid: 0 }])).get(body.id),
    ];
    expect(Object.keys(asked!).toSorted()).toEqual(Object.keys(read!).toSorted());
    expect(asked!.cpuMicros).toBeGreaterThanOrEqual(read!.cpuMicros);
    expect(Math.abs(asked!.memoryBytes! - read!.memoryBytes!)).toBeLessThan(8 * MIB);
    expect(asked!.sentBytes).toBeGreaterThanOrEqual(read!.sentBytes!);
    // A number that another process has now.
    expect(await readControlGroups(Id, process.pid)).toBeUndefined();
  });
});
