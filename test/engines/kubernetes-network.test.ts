import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Findings } from '../../src/engines/kubernetes/network/findings.js';
import { ProbeLease } from '../../src/engines/kubernetes/network/probe-lease.js';
import { ProbePods, type ProbeOptions } from '../../src/engines/kubernetes/network/probe-pods.js';
import { probeNetwork } from '../../src/engines/kubernetes/network/probe.js';
import { CONTAINER, podName } from '../../src/engines/kubernetes/names.js';
import { PodPrograms } from '../../src/engines/kubernetes/programs.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { PolicyAgent } from '../support/policy-agent.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const START = { start: true };
const request = (name: string, network: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 64 },
  network,
});
const rule = (destination: unknown, more: Record<string, unknown> = {}) => ({
  direction: 'egress',
  action: 'allow',
  destination,
  ...more,
});
const port = (number: number) => ({ protocols: ['tcp'], ports: [{ start: number, end: number }] });

describeKubernetes('the network of a cluster', () => {
  let namespace: TestNamespace;
  let options: ProbeOptions;
  beforeAll(async () => {
    namespace = await openNamespace();
    const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';
    const programs = new PodPrograms(namespace, architecture);
    await programs.ensure(namespace.namespace);
    options = {
      instanceId: randomUUID(),
      image: NODE_IMAGE,
      runtimeClass: undefined,
      architecture,
      programs: programs.volume,
    };
  });
  afterAll(async () => namespace.remove());

  const leftOver = async () => {
    const { core, networking, namespace: name } = namespace;
    const pods = await core.listNamespacedPod({ namespace: name });
    const policies = await networking.listNamespacedNetworkPolicy({ namespace: name });
    return [...pods.items, ...policies.items].map(({ metadata }) => metadata!.name);
  };

  const untilNothingLeft = () => until(leftOver, (names) => names.length === 0);

  test('is probed with two Pods, and without a plugin no sandbox is accepted', async (context) => {
    const service = await startTestService(namespace.service({ network: 'probe', probeImage: NODE_IMAGE }));
    try {
      await untilNothingLeft();
      if (service.runtime.capabilities.has('network'))
        return context.skip('this cluster enforces NetworkPolicy');
      expect(service.runtime.description).toContain('NONE: a NetworkPolicy does not stop traffic to a Pod');
      const client = await service.newOrg();
      for (const [network, field] of [
        [{}, 'network.enabled'],
        [{ enabled: false }, 'network.enabled'],
        [{ policy: { default_egress: 'deny', default_ingress: 'deny' } }, 'network.policy'],
      ] as const) {
        const { status, body } = await client.post('/v1/sandboxes', request('refused', network));
        expect([status, body.error.details.field]).toEqual([400, field]);
        expect(body.error.message).toContain('--kubernetes-network trusted');
      }
    } finally {
      await service.close();
    }
  });

  test('removes what a killed probe left, and takes over its lease', async () => {
    const killed = new ProbePods(namespace, options);
    await killed.start();
    await killed.addPolicy('server', 'closed', { policyTypes: ['Ingress'] });
    expect((await leftOver()).length).toBe(3);
    const findings: Findings = await probeNetwork(namespace, options);
    expect(findings.reason === null).toBe(findings.isEnforced);
    await untilNothingLeft();

    const leaseOf = () => new ProbeLease(namespace, options.instanceId, 'inputs');
    const dead = leaseOf().findings(() => new Promise(() => undefined));
    void dead.catch(() => undefined);
    const lease = { name: `sandkeep-probe-${options.instanceId}`, namespace: namespace.namespace };
    const { spec } = await until(
      async () => namespace.coordination.readNamespacedLease(lease).catch(() => ({ spec: undefined })),
      (read) => read.spec?.holderIdentity !== undefined,
    );
    // Another identity, so that the renewals of the first one fail as after its death. A renewal between the read and
    // the replacement is a conflict.
    await until(
      async () => {
        const taken = await namespace.coordination.readNamespacedLease(lease);
        const body = Object.assign(taken, { spec: Object.assign(spec!, { holderIdentity: 'killed' }) });
        return namespace.coordination.replaceNamespacedLease({ ...lease, body }).then(
          () => 'replaced',
          (error: Error) => error.message,
        );
      },
      (outcome) => outcome === 'replaced',
    );
    const began = performance.now();
    expect(await leaseOf().findings(() => Promise.resolve(findings))).toEqual(findings);
    expect(performance.now() - began).toBeGreaterThan(14_000);
    const noProbe = () => Promise.reject(new Error('the findings are known'));
    expect(await leaseOf().findings(noProbe)).toEqual(findings);
  });

  test('without an image the probe names the reason', async () => {
    const findings = await probeNetwork(namespace, { ...options, image: '127.0.0.1:1/none:1' });
    expect(findings.reason).toContain('the image 127.0.0.1:1/none:1 cannot be pulled');
    await untilNothingLeft();
  });
});

describeKubernetes('a network that enforces policies', () => {
  let namespace: TestNamespace;
  let agent: PolicyAgent;
  let service: TestService;
  let client: Client;
  const servers: Server[] = [];
  const [open, closed] = hostAddresses();
  const ports: number[] = [];
  beforeAll(async () => {
    namespace = await openNamespace();
    agent = new PolicyAgent(namespace);
    for (const _ of [1, 2]) {
      // A policy can take effect within a connection. The next Pod with its address resets it, which may be minutes
      // later.
      const server = createServer((socket) => socket.on('error', () => socket.destroy()).end());
      await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
      servers.push(server);
      ports.push((server.address() as { port: number }).port);
    }
    // All private addresses but those of this machine, which stands for a server outside of the cluster.
    const { core } = namespace;
    const { items: nodes } = await core.listNode();
    const used = nodes.flatMap(({ status }) => status?.addresses ?? []).map(({ address }) => address);
    const pods = await podBlocks();
    service = await startTestService({
      ...namespace.service({
        network: 'probe',
        probeImage: NODE_IMAGE,
        clusterCidrs: [...used.filter((address) => /^[\d.]+$/.test(address)), ...pods],
      }),
      settings: { stopGraceMs: 1_000 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await agent.close();
    await namespace.remove();
    for (const server of servers) server.close();
  });

  /** The networks of Pods and Services, by the addresses that two of them have. */
  async function podBlocks(): Promise<string[]> {
    const { core } = namespace;
    const { items } = await core.listPodForAllNamespaces();
    const apiServer = await core.readNamespacedService({ name: 'kubernetes', namespace: 'default' });
    const addresses = [apiServer.spec?.clusterIP, ...items.map(({ status }) => status?.podIP)];
    const blocks = addresses.flatMap((address) => {
      const [, prefix] = /^(\d+\.\d+)\.\d+\.\d+$/.exec(address ?? '') ?? [];
      return prefix === undefined ? [] : [`${prefix}.0.0/16`];
    });
    return [...new Set(['10.201.0.0/16', '10.244.0.0/16', ...blocks])];
  }

  const start = async (name: string, network: Record<string, unknown>, cmd: string[] = []) => {
    const runtime = cmd.length === 0 ? {} : { runtime: { cmd, entrypoint: [] } };
    const created = { ...request(name, network), ...runtime };
    const body = await untilRunning(client, await client.post('/v1/sandboxes', created, START));
    const [pod] = await namespace.podsOf(body.id);
    return { id: body.id as string, address: pod!.status!.podIP!, run: pod!.metadata!.name! };
  };
  const connects = async (id: string, address: string, number: number): Promise<boolean> => {
    const args = ['nc', '-w', '2', address, String(number), '-e', 'true'];
    const { body } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'busybox', args });
    return body.exit_code === 0;
  };
  const settles = async (id: string, address: string, number: number, wanted: boolean) =>
    until(
      async () => connects(id, address, number),
      (connected) => connected === wanted,
      20_000,
    );

  test('passes what the rules of a policy allow, and nothing else', async () => {
    const [first, second] = ports as [number, number];
    const { id, run } = await start('policy', {
      policy: {
        default_egress: 'deny',
        rules: [
          rule({ cidr: closed! }, { action: 'deny' }),
          rule({ cidr: open! }, port(first)),
          rule({ cidr: closed! }, port(first)),
        ],
      },
    });
    await settles(id, closed!, first, false);
    await settles(id, open!, second, false);
    await settles(id, open!, first, true);
    const { networking } = namespace;
    const policy = await networking.readNamespacedNetworkPolicy({
      name: run,
      namespace: namespace.namespace,
    });
    expect(
      policy.metadata!.creationTimestamp! <= (await namespace.podsOf(id))[0]!.metadata!.creationTimestamp!,
    ).toBe(true);
    await client.delete(`/v1/sandboxes/${id}`);
    await until(
      () => networking.listNamespacedNetworkPolicy({ namespace: namespace.namespace }),
      ({ items }) => items.every(({ metadata }) => metadata!.name !== run),
      60_000,
    );
  });

  test('keeps sandboxes from each other, and lets other Pods of the cluster in', async () => {
    const all = { policy: { default_egress: 'allow', default_ingress: 'allow' } };
    const one = await start('one', all);
    const two = await start('two', all, [
      'busybox',
      'sh',
      '-c',
      'while :; do busybox nc -l -p 7000 -e true; done',
    ]);
    await settles(two.id, '127.0.0.1', 7_000, true);
    await settles(one.id, two.address, 7_000, false);
    await settles(one.id, open!, ports[0]!, true);
    const { core, namespace: name } = namespace;
    const { spec } = (await namespace.podsOf(two.id))[0]!;
    // Between two connections nothing listens for a moment.
    const visit = `until busybox nc -w 60 ${two.address} 7000 -e true; do busybox sleep 1; done`;
    const command = ['busybox', 'sh', '-c', visit];
    await core.createNamespacedPod({
      namespace: name,
      body: {
        metadata: { name: 'visitor' },
        spec: {
          restartPolicy: 'Never',
          nodeName: spec!.nodeName!,
          containers: [{ name: CONTAINER, image: NODE_IMAGE, imagePullPolicy: 'IfNotPresent', command }],
        },
      },
    });
    const visitor = await until(
      () => core.readNamespacedPod({ name: 'visitor', namespace: name }),
      ({ status }) => status?.phase === 'Succeeded' || status?.phase === 'Failed',
      60_000,
    );
    await core.deleteNamespacedPod({ name: 'visitor', namespace: name, gracePeriodSeconds: 0 });
    expect(visitor.status?.phase).toBe('Succeeded');
    // The processors of a small cluster are needed again.
    await destroyAll(service, client);
  });

  test('closes a sandbox without a network, also when somebody removes its policy', async () => {
    const off = await start('off', { enabled: false });
    await settles(off.id, open!, ports[0]!, false);
    const on = await start('on', { policy: { default_egress: 'allow' } });
    expect(await settles(on.id, open!, ports[0]!, true)).toBe(true);
    await namespace.networking.deleteNamespacedNetworkPolicy({
      name: on.run,
      namespace: namespace.namespace,
    });
    await settles(on.id, open!, ports[0]!, false);
  });

  test('removes policies without a Pod after a kill', async () => {
    const { networking, namespace: name } = namespace;
    const { run } = await start('kept', { policy: { default_egress: 'allow' } });
    const own = await networking.readNamespacedNetworkPolicy({ name: run, namespace: name });
    const stray = podName(randomUUID());
    await networking.createNamespacedNetworkPolicy({
      namespace: name,
      body: { metadata: { name: stray, labels: own.metadata!.labels! }, spec: own.spec! },
    });
    await service.runtime.takeOver({ valid: true });
    const names = async () => {
      const { items } = await networking.listNamespacedNetworkPolicy({ namespace: name });
      return new Set(items.map(({ metadata }) => metadata!.name));
    };
    // A list sweeps at most once a second.
    const sweep = () => service.runtime.list().then(names);
    const left = await until(sweep, (policies) => !policies.has(stray));
    expect(left.has(run)).toBe(true);
    await destroyAll(service, client);
  });

  test('refuses by field what a NetworkPolicy cannot say', async () => {
    const ranges = service.runtime.capabilities.has('network_port_ranges');
    for (const [rules, field] of [
      [[rule('any', { protocols: ['icmpv4'] })], 'network.policy.rules[0].protocols'],
      [[rule({ domain: 'example.com' })], 'network.policy.rules[0].destination.domain'],
      [[rule({ group: 'host' })], 'network.policy.rules[0].destination.group'],
      [[rule({ group: 'metadata' })], 'network.policy.rules[0].destination.group'],
      ...(ranges
        ? []
        : [
            [
              [rule('any', { ...port(1), ports: [{ start: 1, end: 2 }] })],
              'network.policy.rules[0].ports',
            ] as const,
            [[rule('any', { ...port(25), action: 'deny' })], 'network.policy.rules[0].ports'] as const,
          ]),
    ] as const) {
      const policy = { default_egress: 'allow', default_ingress: 'deny', rules };
      const { status, body } = await client.post('/v1/sandboxes', request('refused', { policy }));
      expect([status, body.error?.details?.field], JSON.stringify(body)).toEqual([400, field]);
    }
    await untilStatus(client, (await start('last', {})).id, 'running');
  });
});

/** Two addresses of this machine that Pods reach. */
function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flat()
    .filter((entry) => entry?.family === 'IPv4' && !entry.internal)
    .map((entry) => entry!.address);
}
