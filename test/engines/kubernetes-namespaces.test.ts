import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { readInstance } from '../../src/db/instance-queries.js';
import {
  CONTAINER,
  INSTANCE_LABEL,
  ORG_LABEL,
  placeOf,
  podName,
  RUN_LABEL,
  SANDBOX_LABEL,
} from '../../src/engines/kubernetes/names.js';
import { setQuotas } from '../../src/quotas/set.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  textOf,
  untilRunning,
  wholeLog,
  type TestNamespace,
} from '../support/kubernetes.js';
import { PolicyAgent } from '../support/policy-agent.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const EACH = 'each-organization';
const START = { start: true };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 64 },
  ...more,
});
const LISTENING = ['busybox', 'sh', '-c', 'while :; do busybox nc -l -p 7000 -e true; done'];

async function started(client: Client, name: string, more: Record<string, unknown> = {}): Promise<string> {
  return (await untilRunning(client, await client.post('/v1/sandboxes', request(name, more), START))).id;
}

async function sh(client: Client, id: string, script: string): Promise<string> {
  const { body } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
  return body.stdout as string;
}

describeKubernetes('a namespace of each organization', () => {
  let namespace: TestNamespace;
  let agent: PolicyAgent;
  let service: TestService;
  let instanceId: string;
  let one: Client;
  let two: Client;
  const clients: Client[] = [];
  beforeAll(async () => {
    namespace = await openNamespace(EACH);
    agent = new PolicyAgent(namespace);
    service = await startTestService(options());
    instanceId = (await readInstance(service.ctx.pool)).id;
    [one, two] = [await newOrg(), await newOrg()];
  });
  afterEach(async () => destroyAll(service, ...clients));
  afterAll(async () => {
    await service.close();
    await agent.close();
    await namespace.remove();
  });

  const newOrg = async () => {
    const client = await service.newOrg();
    clients.push(client);
    return client;
  };
  const options = () => ({
    ...namespace.service({
      network: 'probe',
      probeImage: NODE_IMAGE,
      cpuOvercommit: 10,
      storage: { defaultMib: 64 },
    }),
    settings: { stopGraceMs: 1_000 },
  });
  const homeOf = (client: Client) => `${namespace.namespace}-${client.org.id}`;
  const nodeOf = async (id: string) => (await namespace.podsOf(id))[0]!.spec!.nodeName!;
  const addressOf = async (id: string) => (await namespace.podsOf(id))[0]!.status!.podIP!;

  /** The names of everything that runs leave, by the kind of object. */
  async function objectsIn(name: string): Promise<Record<string, string[]>> {
    const { core, networking } = namespace;
    const names = (list: { items: { metadata?: { name?: string } }[] }) =>
      list.items.map(({ metadata }) => metadata!.name!).toSorted();
    const secrets = await core.listNamespacedSecret({ namespace: name });
    return {
      pods: names(await core.listNamespacedPod({ namespace: name })),
      claims: names(await core.listNamespacedPersistentVolumeClaim({ namespace: name })),
      secrets: names({
        items: secrets.items.filter(({ type }) => type === 'kubernetes.io/dockerconfigjson'),
      }),
      policies: names(await networking.listNamespacedNetworkPolicy({ namespace: name })),
      programs: names(await core.listNamespacedConfigMap({ namespace: name })).filter((each) =>
        each.startsWith('sandkeep-'),
      ),
    };
  }

  test('has everything of its sandboxes, which work as in a shared one', async () => {
    await one.post('/v1/volumes', { name: 'data' });
    const registry = { mode: 'inline', username: 'user', password: 'secret' };
    const mounts = [{ type: 'named', name: 'data', guest: '/data' }];
    const first = await started(one, 'first', { registry, mounts });
    const second = await started(two, 'second');
    for (const [client, id] of [
      [one, first],
      [two, second],
    ] as const) {
      const [pod] = await namespace.podsOf(id);
      expect(placeOf(pod!)).toEqual({
        name: podName(pod!.metadata!.labels![RUN_LABEL]!),
        namespace: homeOf(client),
      });
      const { metadata } = await namespace.core.readNamespace({ name: homeOf(client) });
      expect(metadata!.labels).toMatchObject({
        [INSTANCE_LABEL]: instanceId,
        [ORG_LABEL]: client.org.id,
        'pod-security.kubernetes.io/enforce': 'baseline',
      });
      const floor = await namespace.networking.readNamespacedNetworkPolicy({
        name: 'sandkeep-sandboxes',
        namespace: homeOf(client),
      });
      expect(floor.metadata!.creationTimestamp! <= pod!.metadata!.creationTimestamp!).toBe(true);
    }
    expect(await objectsIn(homeOf(one))).toMatchObject({
      claims: [expect.stringMatching(/^sandkeep-volume/)],
    });
    expect(await objectsIn(namespace.namespace)).toMatchObject({
      pods: [],
      claims: [],
      secrets: [],
      policies: [],
    });
    expect(await sh(one, first, 'echo kept > /data/file; hostname')).toBe(`${first}\n`);
    expect(await sh(two, second, 'hostname')).toBe(`${second}\n`);

    const runtime = { cmd: ['sh', '-c', 'echo hello'], entrypoint: [] };
    const batch = request('batch', { runtime, lifecycle: { ends_with_command: true } });
    const { body } = await two.post('/v1/sandboxes', batch, { start: true });
    await untilStatus(two, body.id, 'stopped');
    await wholeLog(two, body.id, (events) => textOf(events).includes('hello'));

    await one.post(`/v1/sandboxes/${first}/stop`, {});
    await untilStatus(one, first, 'stopped');
    await untilRunning(one, await one.post(`/v1/sandboxes/${first}/start`, {}));
    expect(await sh(one, first, 'cat /data/file')).toBe('kept\n');

    await destroyAll(service, one, two);
    for (const client of [one, two]) {
      const left = await until(
        // A list sweeps.
        async () => service.runtime.list().then(async () => objectsIn(homeOf(client))),
        ({ pods, policies, secrets }) =>
          pods!.length === 0 && policies!.length === 1 && secrets!.length === 0,
      );
      expect(left).toMatchObject({ pods: [], policies: ['sandkeep-sandboxes'] });
      expect(left['programs']).toHaveLength(1);
    }
  });

  test('is closed to the sandboxes of others, which reach it without its policies', async () => {
    const all = { network: { policy: { default_egress: 'allow', default_ingress: 'allow' } } };
    const server = await started(one, 'server', { ...all, runtime: { cmd: LISTENING, entrypoint: [] } });
    const address = await addressOf(server);
    const node = await nodeOf(server);
    const own: [Client, string][] = [];
    // Not every cluster has a route between its nodes.
    for (const [client, names] of [
      [one, ['one-1', 'one-2', 'one-3', 'one-4']],
      [two, ['two-1', 'two-2', 'two-3', 'two-4']],
    ] as const) {
      for (const name of names) {
        const id = await started(client, name, all);
        if ((await nodeOf(id)) !== node) continue;
        own.push([client, id]);
        break;
      }
    }
    expect(own.map(([client]) => client)).toEqual([one, two]);
    const connects = async ([client, id]: [Client, string]) =>
      (await sh(client, id, `busybox nc -w 2 ${address} 7000 -e true && echo yes || echo no`)) === 'yes\n';
    const settle = async (from: [Client, string], wanted: boolean) =>
      until(
        async () => connects(from),
        (connected) => connected === wanted,
        20_000,
      );
    for (const from of own) await settle(from, false);

    const { core, networking } = namespace;
    // Between two connections nothing listens for a moment.
    const visit = `until busybox nc -w 5 ${address} 7000 -e true; do busybox sleep 1; done`;
    const command = ['busybox', 'sh', '-c', visit];
    const visitor = { name: 'visitor', namespace: homeOf(two) };
    await core.createNamespacedPod({
      namespace: visitor.namespace,
      body: {
        metadata: { name: visitor.name },
        spec: {
          restartPolicy: 'Never',
          nodeName: node,
          containers: [{ name: CONTAINER, image: NODE_IMAGE, imagePullPolicy: 'IfNotPresent', command }],
        },
      },
    });
    const visited = await until(
      () => core.readNamespacedPod(visitor),
      ({ status }) => status?.phase === 'Succeeded' || status?.phase === 'Failed',
    );
    await core.deleteNamespacedPod({ ...visitor, gracePeriodSeconds: 0 });
    expect(visited.status?.phase).toBe('Succeeded');
    for (const from of own) expect(await connects(from)).toBe(false);

    for (const client of [one, two]) {
      await networking.deleteCollectionNamespacedNetworkPolicy({ namespace: homeOf(client) });
    }
    for (const from of own) await settle(from, true);
  });

  test('has the quota of its organization, and a start beyond one waits for it', async () => {
    const { core } = namespace;
    const quota = async () =>
      (await core.readNamespacedResourceQuota({ name: 'sandkeep-runs', namespace: homeOf(one) })).spec?.hard;
    const limit = (most: number | null) =>
      setQuotas(
        service.ctx.pool,
        one.org.id,
        { max_concurrent_ephemeral_running: most, max_concurrent_persistent_running: most },
        operator('test'),
      );
    await limit(1);
    const first = await started(one, 'first');
    expect(await quota()).toEqual({ pods: '2' });
    await limit(null);
    const own = { metadata: { name: 'of-operator' }, spec: { hard: { pods: '1' } } };
    await core.createNamespacedResourceQuota({ namespace: homeOf(one), body: own });
    await until(
      () => core.readNamespacedResourceQuota({ name: 'of-operator', namespace: homeOf(one) }),
      ({ status }) => status?.used?.['pods'] === '1',
    );
    const { body } = await one.post('/v1/sandboxes', request('waits'), { start: true });
    const waiting = await until(
      () => one.get(`/v1/sandboxes/${body.id}`),
      (answer) => answer.body.status_reason === 'insufficient_capacity',
    );
    expect(waiting.body.status).toBe('starting');
    expect(waiting.body.last_failure_message).toMatch(/exceeded quota: of-operator/);
    expect(await quota()).toBeUndefined();
    await one.delete(`/v1/sandboxes/${first}`);
    const { body: at } = await untilStatus(one, body.id, 'running');
    expect([at.status_reason, at.last_failure_message]).toEqual([null, null]);
    await core.deleteNamespacedResourceQuota({ name: 'of-operator', namespace: homeOf(one) });
  });

  test('is completed after a kill between its creation and its first Pod, and swept', async () => {
    const { core, networking } = namespace;
    const three = await newOrg();
    const labels = { [INSTANCE_LABEL]: instanceId, [ORG_LABEL]: three.org.id };
    await core.createNamespace({ body: { metadata: { name: homeOf(three), labels } } });
    await service.runtime.takeOver({ valid: true });
    const id = await started(three, 'first');
    expect((await namespace.podsOf(id))[0]!.metadata!.namespace).toBe(homeOf(three));

    const stray = podName(randomUUID());
    const metadata = { name: stray, labels: { ...labels, 'sandkeep.dev/purpose': 'pull' } };
    await core.createNamespacedSecret({ namespace: homeOf(three), body: { metadata } });
    await networking.createNamespacedNetworkPolicy({
      namespace: homeOf(three),
      body: { metadata, spec: { podSelector: {}, policyTypes: [] } },
    });
    await service.runtime.takeOver({ valid: true });
    const [pod] = await namespace.podsOf(id);
    await until(
      async () => service.runtime.list().then(async () => objectsIn(homeOf(three))),
      ({ policies }) => !policies!.includes(stray) && policies!.includes(pod!.metadata!.name!),
    );
    await until(
      async () => core.readNamespacedSecret({ name: stray, namespace: homeOf(three) }).catch(String),
      (read) => typeof read === 'string' && read.includes('404'),
    );
  });

  test('is created again when somebody deletes it', async () => {
    const { core } = namespace;
    const four = await newOrg();
    const id = await started(four, 'first');
    await core.deleteNamespace({ name: homeOf(four) });
    const failed = await untilStatus(four, id, 'failed');
    expect(failed.body.last_failure_message).toContain('the cluster deleted the Pod');
    await four.post(`/v1/sandboxes/${id}/start`, {});
    await untilStatus(four, id, 'running');
  });

  test('that others created is not touched, and their Pods are no sandboxes', async () => {
    const { core } = namespace;
    const five = await newOrg();
    const labels = { [INSTANCE_LABEL]: instanceId, [ORG_LABEL]: 'another' };
    await core.createNamespace({ body: { metadata: { name: homeOf(five), labels } } });
    const { body } = await five.post('/v1/sandboxes', request('refused'), { start: true });
    const failed = await untilStatus(five, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain(`the cluster has another namespace ${homeOf(five)}`);
    expect(await objectsIn(homeOf(five))).toMatchObject({ pods: [], policies: [], programs: [] });

    const id = await started(one, 'real');
    const [pod] = await namespace.podsOf(id);
    const ids = { [ORG_LABEL]: one.org.id, [SANDBOX_LABEL]: id, [RUN_LABEL]: 'ffffffff-forged' };
    const forged = { name: pod!.metadata!.name!, namespace: homeOf(five) };
    await until(
      () => core.listNamespacedServiceAccount({ namespace: homeOf(five) }),
      ({ items }) => items.length > 0,
    );
    await core.createNamespacedPod({
      namespace: forged.namespace,
      body: {
        metadata: { name: forged.name, labels: { [INSTANCE_LABEL]: instanceId, ...ids } },
        spec: { containers: [{ name: CONTAINER, image: NODE_IMAGE, imagePullPolicy: 'IfNotPresent' }] },
      },
    });
    await service.runtime.takeOver({ valid: true });
    const [held] = await service.runtime.list(new Set([id]));
    expect(held!.runId).toBe(pod!.metadata!.labels![RUN_LABEL]);
    await one.delete(`/v1/sandboxes/${id}`);
    await until(
      () => service.runtime.list(),
      (holdings) => holdings.length === 0,
    );
    expect((await core.readNamespacedPod(forged)).metadata!.deletionTimestamp).toBeUndefined();
    await core.deleteNamespacedPod({ ...forged, gracePeriodSeconds: 0 });
    await five.delete(`/v1/sandboxes/${body.id}`);
  });

  test('keeps its volumes for a service that starts again', async () => {
    const mounts = [{ type: 'named', name: 'later', guest: '/data' }];
    await two.post('/v1/volumes', { name: 'later' });
    const id = await started(two, 'before', { mounts });
    await sh(two, id, 'echo kept > /data/file');
    await two.post(`/v1/sandboxes/${id}/stop`, {});
    await untilStatus(two, id, 'stopped');
    const runtime = await namespace.connect(instanceId, { storage: { defaultMib: 64 } });
    try {
      const { volumes } = runtime;
      expect(volumes!.list()).toContainEqual(expect.objectContaining({ orgId: two.org.id }));
      expect((await runtime.list()).map(({ sandboxId }) => sandboxId)).toContain(id);
    } finally {
      await runtime.close();
    }
    await untilRunning(two, await two.post(`/v1/sandboxes/${id}/start`, {}));
    expect(await sh(two, id, 'cat /data/file')).toBe('kept\n');
  });
});

describeKubernetes('a change between one namespace and one of each organization', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await openNamespace(EACH);
  });
  afterAll(() => namespace.remove());

  const connect = async (instanceId: string, namespaces: 'shared' | typeof EACH) =>
    namespace.connect(instanceId, { namespaces });

  test('keeps the Pods of the one until they end, and is refused with volumes in it', async () => {
    const service = await startTestService({
      runtime: (instanceId) => connect(instanceId, 'shared'),
      settings: { stopGraceMs: 1_000 },
    });
    const client = await service.newOrg();
    const instanceId = (await readInstance(service.ctx.pool)).id;
    const id = await started(client, 'before');
    await service.stopWorker();
    const apart = await connect(instanceId, EACH);
    expect(await apart.list()).toEqual([expect.objectContaining({ sandboxId: id, state: 'running' })]);
    const { guest, release } = await apart.openGuest(id);
    expect(guest).toBeDefined();
    release();
    await apart.destroy(id);
    await until(
      () => apart.list(),
      (held) => held.length === 0,
    );
    await apart.close();
    await service.close();

    const claimed = randomUUID();
    await namespace.core.createNamespacedPersistentVolumeClaim({
      namespace: namespace.namespace,
      body: {
        metadata: { name: 'claim', labels: { [INSTANCE_LABEL]: claimed } },
        spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Mi' } } },
      },
    });
    await expect(connect(claimed, EACH)).rejects.toThrow(
      /^0 Pods and 1 claims of volumes are where --kubernetes-namespaces shared keeps them: use it, or delete/,
    );
    await (await connect(claimed, 'shared')).close();
  });

  test('is refused while organizations have Pods', async () => {
    const service = await startTestService({ ...namespace.service(), settings: { stopGraceMs: 1_000 } });
    const client = await service.newOrg();
    const instanceId = (await readInstance(service.ctx.pool)).id;
    await started(client, 'apart');
    await expect(connect(instanceId, 'shared')).rejects.toThrow(
      /^1 Pods and 0 claims of volumes are where --kubernetes-namespaces each-organization keeps them/,
    );
    await destroyAll(service, client);
    await service.close();
    await (await connect(instanceId, 'shared')).close();
    await (await connect(instanceId, 'shared')).close();
    await (await connect(instanceId, EACH)).close();
  });

  test('is refused for a namespace with a long name, or without the rights', async () => {
    const { core, namespace: name, library, config } = namespace;
    const long = `${name}-${'x'.repeat(10)}`;
    await core.createNamespace({ body: { metadata: { name: long } } });
    const there = namespace.connect(randomUUID(), { namespaces: EACH, namespace: long });
    await expect(there).rejects.toThrow(
      /too long: choose a --kubernetes-namespace of at most 26 characters$/,
    );
    await core.deleteNamespace({ name: long });
    const rbac = config.makeApiClient(library.RbacAuthorizationV1Api);
    await rbac.deleteNamespacedRoleBinding({ name: 'sandkeep-organization', namespace: name });
    await expect(connect(randomUUID(), EACH)).rejects.toThrow(
      /has no RoleBinding "sandkeep-organization" that the account may read: run "sandkeep kubernetes manifest/,
    );
  });
});
