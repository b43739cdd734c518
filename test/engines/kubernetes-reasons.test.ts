import type { V1Eviction } from '@kubernetes/client-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const START = { start: true };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 32 },
  ...more,
});
/** Clusters since 1.26 say in the Pod why they disrupted it. */
const TELLS_DISRUPTIONS = 26;
const POLICY_V1 = 22;

describeKubernetes('the reasons of a cluster', () => {
  let namespace: TestNamespace;
  let service: TestService;
  let client: Client;
  let minor: number;
  beforeAll(async () => {
    namespace = await openNamespace();
    const { library, config } = namespace;
    const { gitVersion } = await config.makeApiClient(library.VersionApi).getCode();
    minor = Number(gitVersion.split('.')[1]);
    await config.makeApiClient(library.NodeV1Api).createRuntimeClass({
      body: { metadata: { name: namespace.namespace }, handler: await handlerOf(namespace) },
    });
    service = await startTestService({
      ...namespace.service({
        runtimeClass: namespace.namespace,
        restrictedRuntimeClass: `${namespace.namespace}-missing`,
      }),
      settings: { stopGraceMs: 1_000 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await namespace.remove();
    const { library, config } = namespace;
    await config.makeApiClient(library.NodeV1Api).deleteRuntimeClass({ name: namespace.namespace });
  });

  const start = async (name: string, more = {}) => {
    const { id } = await untilRunning(client, await client.post('/v1/sandboxes', request(name, more), START));
    return id as string;
  };
  const reasonOf = async (id: string) =>
    (await client.get('/v1/events', { resource_id: id, event_type: 'sandbox_failed' })).body.data[0].payload
      .reason;
  const expectEnd = async (id: string, reason: string, words: string) => {
    const { body } = await untilStatus(client, id, 'failed');
    const told = minor >= TELLS_DISRUPTIONS;
    expect(await reasonOf(id)).toBe(told ? reason : 'deleted_by_cluster');
    expect(body.last_failure_message).toContain(told ? words : 'the cluster deleted the Pod');
    expect(body.stopped_at >= body.started_at).toBe(true);
    await until(
      () => namespace.podsOf(id),
      (pods) => pods.length === 0,
    );
  };

  test('an eviction, as when a node is drained', async () => {
    const id = await start('evicted');
    const [pod] = await namespace.podsOf(id);
    const target = { name: pod!.metadata!.name!, namespace: namespace.namespace };
    const apiVersion = minor < POLICY_V1 ? 'policy/v1beta1' : 'policy/v1';
    const body: V1Eviction = { apiVersion, kind: 'Eviction', metadata: target };
    await namespace.core.createNamespacedPodEviction({ ...target, body });
    await expectEnd(id, 'evicted', 'was evicted from its node');
  });

  test('a preemption by a more important Pod', async () => {
    const id = await start('preempted');
    const { library, config, core } = namespace;
    const scheduling = config.makeApiClient(library.SchedulingV1Api);
    const name = namespace.namespace;
    await scheduling.createPriorityClass({ body: { metadata: { name }, value: 1_000 } });
    // It needs no room: it tolerates no node with this sandbox, so the scheduler removes that one alone.
    const term = {
      labelSelector: { matchLabels: { 'sandkeep.dev/sandbox': id } },
      topologyKey: 'kubernetes.io/os',
    };
    await core.createNamespacedPod({
      namespace: name,
      body: {
        metadata: { name: 'important' },
        spec: {
          priorityClassName: name,
          affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } },
          containers: [
            { name: 'main', image: NODE_IMAGE, imagePullPolicy: 'IfNotPresent', command: ['sleep', '600'] },
          ],
        },
      },
    });
    try {
      await expectEnd(id, 'preempted', 'for a more important Pod');
    } finally {
      await core.deleteNamespacedPod({ name: 'important', namespace: name, gracePeriodSeconds: 1 });
      await scheduling.deletePriorityClass({ name });
    }
  });

  test('a RuntimeClass is in the record of the Pod, and a missing one fails the start', async () => {
    const id = await start('classed');
    expect((await namespace.podsOf(id))[0]!.spec!.runtimeClassName).toBe(namespace.namespace);
    const { body } = await client.post(
      '/v1/sandboxes',
      request('missing', { security_profile: 'restricted' }),
      { start: true },
    );
    const failed = await untilStatus(client, body.id, 'failed');
    expect(failed.body.last_failure_message).toContain('the cluster refused the Pod');
    expect(failed.body.last_failure_message).toContain(`${namespace.namespace}-missing`);
    expect(await namespace.podsOf(body.id)).toEqual([]);
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('activity is measured by kubelets that know their Pods, and by others', async () => {
    const lifecycle = { idle_timeout_secs: 20 };
    const shell = (script: string) => ({ cmd: ['sh', '-c', script], entrypoint: [] });
    const busy = await start('busy', { lifecycle, runtime: shell('while :; do :; done') });
    const idle = await start('idle', { lifecycle, runtime: shell('sleep 1000') });
    const { body } = await untilStatus(client, idle, 'stopped');
    expect(new Date(body.stopped_at).getTime() - new Date(body.started_at).getTime()).toBeGreaterThan(15_000);
    const { body: events } = await client.get('/v1/events', {
      resource_id: idle,
      event_type: 'sandbox_stopped',
    });
    expect(events.data[0].payload.reason).toBe('idle_timeout');
    expect((await client.get(`/v1/sandboxes/${busy}`)).body.status).toBe('running');
    // A kubelet under load may miss a measurement.
    await until(
      async () => (await service.runtime.activity([busy])).get(busy)?.cpuMicros ?? 0,
      (micros) => micros > 1_000_000,
    );
    await client.delete(`/v1/sandboxes/${busy}`);
  });
});

/** The handler of the container runtime of the nodes. */
async function handlerOf({ core }: TestNamespace): Promise<string> {
  const [node] = (await core.listNode({ limit: 1 })).items;
  return node!.status!.nodeInfo!.containerRuntimeVersion.startsWith('docker:') ? 'docker' : 'runc';
}
