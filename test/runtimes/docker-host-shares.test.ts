import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

/** The engine runs with the capabilities of this machine. */
const ENGINE_STATUS = '/proc/self/status';
const CAP_SYS_RESOURCE = 24n;

const running = { start: true, wait_for: 'running', wait_timeout: 60 };

describeDocker('a sandbox', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService(onDocker());
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  const start = async (name: string, vcpus: number) => {
    const { body } = await client.post(
      '/v1/sandboxes',
      smallRequest(name, {
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus, memory_mib: 64 },
      }),
      running,
    );
    expect(body.status).toBe('running');
    const { HostConfig, State } = await (await containerOf(body.id))!.inspect();
    return { id: body.id as string, host: HostConfig, pid: State.Pid };
  };

  test('has a share of the processor that grows with its vCPUs, and is smaller than that of a service', async () => {
    const [one, two, none] = [await start('one', 1), await start('two', 2), await start('none', 0)];
    expect([one, two, none].map(({ host }) => host.CpuShares)).toEqual([128, 256, 32]);
    expect([one, none].map(({ host }) => host.NanoCpus)).toEqual([1e9, 0.25e9]);
  });

  test('is killed first when the machine has no memory, and a process in it cannot change that', async () => {
    const { id, pid } = await start('victim', 1);
    expect(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8')).toBe('900\n');
    const attempt = 'echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj';
    // The kernel remembers the value as a lower bound only if the engine has this capability.
    const bounding = /^CapBnd:\s*([0-9a-f]+)/m.exec(readFileSync(ENGINE_STATUS, 'utf8'))![1];
    if (((BigInt(`0x${bounding}`) >> CAP_SYS_RESOURCE) & 1n) === 0n) return;
    expect(await execIn(id, 'sh', '-c', attempt)).toMatch(/900\s*$/);
  });
});
