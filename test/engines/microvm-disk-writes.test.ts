import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { startTestService, type TestService } from '../support/service.js';

const LIMIT_MIB = 2;
const WRITTEN_MIB = 8;

describeMicrovm('writes of a virtual machine to its disk', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({
      ...onMicrovm(dataDir, {}, { microvmDiskWritesMib: LIMIT_MIB }),
      settings: { stopGraceMs: 60_000 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  test('take no more of the disk of the machine than they may, also after a pause', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'writes',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192 },
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    const secondsOf = async (file: string) => {
      await shIn(service, body.id, `head -c ${WRITTEN_MIB * 1_048_576} /dev/urandom > /dev/shm/${file}`);
      const begun = performance.now();
      await shIn(service, body.id, `cp /dev/shm/${file} /srv/${file}; sync`);
      return (performance.now() - begun) / 1_000;
    };
    // A tenth of a second passes at once.
    const least = WRITTEN_MIB / LIMIT_MIB - 1;
    expect(await secondsOf('first')).toBeGreaterThan(least);
    await client.post(`/v1/sandboxes/${body.id}/pause`, {}, { wait_for: 'paused', wait_timeout: 120 });
    await client.post(`/v1/sandboxes/${body.id}/resume`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect(await secondsOf('second')).toBeGreaterThan(least);
    expect(await shIn(service, body.id, 'cmp /dev/shm/first /srv/first && echo same')).toBe('same');
    // The cache of the kernel holds no more than a stop can write.
    expect(await shIn(service, body.id, 'cat /proc/sys/vm/dirty_bytes')).toBe(
      String(LIMIT_MIB * 1024 * 1024),
    );
    const sum = await shIn(
      service,
      body.id,
      'head -c 3145728 /dev/urandom > /srv/third; md5sum < /srv/third',
    );
    await client.post(`/v1/sandboxes/${body.id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
    await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect(await shIn(service, body.id, 'md5sum < /srv/third')).toBe(sum);
  });
});
