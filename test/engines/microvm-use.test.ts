import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { sh } from '../support/guest.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const MIB = 1024 ** 2;

describeMicrovm('the use of a virtual machine', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService(onMicrovm(dataDir));
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  test('is its processor time, memory, disk, network and processes, and the memory of the machine that it takes', async () => {
    await client.post('/v1/volumes', { name: 'data' });
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'used',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192 },
        mounts: [{ type: 'named', name: 'data', guest: '/data' }],
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    const metrics = async () => (await client.get(`/v1/sandboxes/${body.id}/metrics`)).body;
    const before = await until(metrics, ({ current }) => current?.memory_bytes != null);
    const { guest, release } = await service.runtime.openGuest(body.id);
    try {
      // Memory is kept in a tmpfs, so that it is not a cache that the kernel can drop.
      await sh(guest, 'dd if=/dev/zero of=/dev/shm/held bs=1M count=24 2> /dev/null');
      // Zeros would be holes of the disk.
      await sh(guest, 'head -c 8388608 /dev/urandom > /srv/held; sync');
      await sh(guest, 'head -c 6291456 /dev/urandom > /data/held; sync; dd if=/data/held of=/dev/null bs=1M');
      await sh(guest, '(while :; do :; done) > /dev/null 2>&1 &');
    } finally {
      release();
    }
    const used = await until(
      metrics,
      ({ current }) =>
        current.cpu_percent > 5 &&
        current.processes >= 2 &&
        current.memory_bytes - before.current.memory_bytes > 23 * MIB &&
        // The file server of the volume writes six of 14 MiB. The machine counts a page when it reaches the disk.
        current.disk_write_bytes - before.current.disk_write_bytes > 13 * MIB &&
        current.disk_bytes >= 8 * MIB,
    );
    expect(used).toMatchObject({
      memory_limit_bytes: 192 * MIB,
      // That of the engine, since the specification has none.
      disk_limit_bytes: 256 * MIB,
      cpu_limit_percent: 100,
    });
    const { current } = used;
    expect(current.memory_bytes).toBeLessThan(192 * MIB);
    // The kernel of the sandbox and the monitor have memory of their own.
    expect(current.host_memory_bytes).toBeGreaterThan(current.memory_bytes);
    // Its amounts are in the tests of the network.
    expect([current.net_rx_bytes, current.net_tx_bytes]).toEqual([expect.any(Number), expect.any(Number)]);
    expect(current.disk_read_bytes).toBeGreaterThanOrEqual(0);
  });
});
