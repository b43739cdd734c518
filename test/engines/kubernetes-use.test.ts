import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentClient } from '../support/agent-client.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import { heldMemory } from '../support/held-memory.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const MIB = 1024 ** 2;
const HELD = 32 * MIB;
const START = { start: true };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 128 },
  ...more,
});

describeKubernetes('the use of a Pod', () => {
  let namespace: TestNamespace;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    namespace = await openNamespace();
    service = await startTestService({ ...namespace.service(), settings: { stopGraceMs: 1_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await namespace.remove();
  });

  const create = async (name: string, more: Record<string, unknown> = {}) => {
    const { id } = await untilRunning(client, await client.post('/v1/sandboxes', request(name, more), START));
    return id as string;
  };
  const metrics = async (id: string) => (await client.get(`/v1/sandboxes/${id}/metrics`)).body;

  test('grows with that of the guest, and a sandbox without use stops and starts again', async () => {
    // Memory of a tmpfs is no cache that the kernel can drop.
    const uses = `busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=${HELD / MIB}; while :; do :; done`;
    const runtime = { cmd: ['sh', '-c', uses], entrypoint: [] };
    const [idle, busy] = await Promise.all([
      // Long enough to be seen running, and to have its use read.
      create('idle', { lifecycle: { idle_timeout_secs: 60 } }),
      create('busy', { runtime }),
    ]);
    const [less, more] = await Promise.all([
      until(
        () => metrics(idle),
        ({ current }) => current !== null,
      ),
      until(
        () => metrics(busy),
        ({ current }) => current?.cpu_percent > 20 && current.memory_bytes > HELD,
      ),
    ]);
    expect(more).toMatchObject({ memory_limit_bytes: 128 * MIB, cpu_limit_percent: 100 });
    expect(more.current.memory_bytes).toBeLessThan(128 * MIB);
    expect(less.current.memory_bytes).toBeLessThan(HELD);
    expect(less.current.cpu_percent).toBeLessThan(more.current.cpu_percent);
    // A container has a memory of zero, and no processor time, before its kubelet measures it.
    expect(less.current.memory_bytes).toBeGreaterThan(0);
    expect(more.current.cpu_percent).toBeLessThan(200);
    const { body } = await untilStatus(client, idle, 'stopped');
    expect(body.stop_reason).toBe('idle');
    await untilRunning(client, await client.post(`/v1/sandboxes/${idle}/start`, {}));
    expect((await client.get(`/v1/sandboxes/${busy}`)).body.status).toBe('running');
  });

  test('128 MiB of input reach a command that reads late, with bounded memory of the service', async () => {
    const id = await create('reads-late');
    const agent = await AgentClient.open(client, id);
    const session = agent.sh('sleep 4; busybox sha256sum');
    const block = randomBytes(MIB);
    const hash = createHash('sha256');
    const before = heldMemory();
    let most = 0;
    for (let sent = 0; sent < 128; sent++) {
      block.writeUInt32BE(sent);
      hash.update(block);
      agent.stdin(session, block);
      // The client itself, in the same process, keeps no more than a piece.
      await until(
        () => Promise.resolve(agent.socket.bufferedAmount),
        (buffered) => buffered < MIB,
      );
      if (sent % 4 === 3) most = Math.max(most, heldMemory() - before);
    }
    agent.stdin(session);
    const messages = await agent.all(session);
    const output = messages
      .filter(({ type }) => type === 'core.exec.stdout')
      .map(({ payload }) => Buffer.from(payload.data).toString())
      .join('');
    expect(output).toBe(`${hash.digest('hex')}  -\n`);
    // The service, its client and their sockets hold about 45 MiB, however much is sent.
    expect(most).toBeLessThan(80 * MIB);
    agent.socket.close();
  });
});
