import type { KubernetesObject, V1Pod, V1PolicyRule, V1RoleBinding } from '@kubernetes/client-node';
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { setQuotas } from '../../src/quotas/set.js';
import { manifest, type ManifestOptions } from '../../src/engines/kubernetes/manifest.js';
import { placeOf, RUN_LABEL, SANDBOX_LABEL } from '../../src/engines/kubernetes/names.js';
import { NAMESPACE_CHOICES } from '../../src/engines/kubernetes/namespace-choices.js';
import type { KubernetesOptions } from '../../src/engines/kubernetes/runtime.js';
import { recordRights, type Right } from '../support/cluster-requests.js';
import { destroyAll } from '../support/docker-service.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { PolicyAgent } from '../support/policy-agent.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService } from '../support/service.js';

const NAME = 'sandkeep';
/** Kubernetes asks for it since 1.35. */
const LATER: Right = 'pods/exec create';
/** No request shows it. */
const BIND: Right = '* rbac.authorization.k8s.io/clusterroles bind';
/** Every account has it. */
const OF_EVERYBODY: Right = '* authorization.k8s.io/selfsubjectaccessreviews create';
const START = { start: true };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: NODE_IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 64 },
  ...more,
});

describeKubernetes('an account with the rights of the manifest', () => {
  let namespace: TestNamespace;
  let agent: PolicyAgent;
  let applied: KubernetesObject[] = [];
  beforeAll(async () => {
    namespace = await openNamespace();
    agent = new PolicyAgent(namespace);
  });
  afterEach(removeRights);
  afterAll(async () => {
    await agent.close();
    await namespace.remove();
  });

  async function applyRights(
    options: Pick<ManifestOptions, 'nodes' | 'volumes' | 'activity' | 'namespaces'>,
  ) {
    const api = namespace.library.KubernetesObjectApi.makeApiClient(namespace.config);
    const items = manifest({ namespace: namespace.namespace, name: NAME, ...options });
    applied = items.filter(({ kind }) => kind !== 'Namespace');
    for (const item of applied) await api.create(item);
    await untilGranted();
    const { status } = await namespace.core.createNamespacedServiceAccountToken({
      name: NAME,
      namespace: namespace.namespace,
      body: { spec: { audiences: [] } },
    });
    return { proxy: await recordRights(namespace, status!.token), granted: rightsOf(applied) };
  }

  /** The API server reads new roles and bindings a moment later. */
  async function untilGranted(): Promise<void> {
    const { library, config } = namespace;
    const api = config.makeApiClient(library.AuthorizationV1Api);
    const user = `system:serviceaccount:${namespace.namespace}:${NAME}`;
    for (const right of rightsOf(applied.map(withoutNamedResources))) {
      const [where, kind, verb] = right.split(' ') as [string, string, string];
      const [group, resource, subresource] = kind.split('/');
      const asked = { group, resource, subresource, verb, ...(where === '*' ? {} : { namespace: where }) };
      const resourceAttributes = Object.fromEntries(
        Object.entries(asked).filter(([, value]) => value !== undefined),
      );
      await until(
        () => api.createSubjectAccessReview({ body: { spec: { user, resourceAttributes } } }),
        ({ status }) => status?.allowed === true,
      );
    }
  }

  async function removeRights(): Promise<void> {
    const api = namespace.library.KubernetesObjectApi.makeApiClient(namespace.config);
    for (const item of applied) await api.delete(item);
    applied = [];
  }

  async function withService(
    options: Partial<KubernetesOptions>,
    work: (parts: Awaited<ReturnType<typeof open>>) => Promise<void>,
  ): Promise<void> {
    const parts = await open(options);
    try {
      await work(parts);
    } finally {
      await destroyAll(parts.service, parts.client);
      await parts.service.close();
    }
  }

  async function open(options: Partial<KubernetesOptions>) {
    const service = await startTestService({
      ...namespace.service(options),
      settings: { stopGraceMs: 1_000 },
    });
    return { service, client: await service.newOrg() };
  }

  test.each(NAMESPACE_CHOICES)('needs each of them, and no other, namespaces: %s', async (namespaces) => {
    const { proxy, granted } = await applyRights({
      nodes: true,
      volumes: true,
      activity: true,
      namespaces,
    });
    const options = {
      namespaces,
      ...({ kubeconfig: proxy.kubeconfig, network: 'probe', probeImage: NODE_IMAGE } as const),
      storage: { defaultMib: 64, sizes: 'enforced' } as const,
    };
    await withService(options, async ({ service, client }) => {
      const { runtime } = service;
      const most = { max_concurrent_ephemeral_running: 9, max_concurrent_persistent_running: 9 };
      await setQuotas(service.ctx.pool, client.org.id, most, operator('test'));
      const registry = { mode: 'inline', username: 'user', password: 'secret' };
      const first = await client.post('/v1/sandboxes', request('first', { registry }), START);
      const { id } = await untilRunning(client, first);
      const { body } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'echo', args: ['inside'] });
      expect(body.stdout).toBe('inside\n');
      // Some kubelets measure no Pods.
      await runtime.activity([id]);
      const [pod] = await namespace.podsOf(id);
      await client.post(`/v1/sandboxes/${id}/stop`, {});
      await untilStatus(client, id, 'stopped');
      const { events } = await openEvents(client, `/v1/sandboxes/${id}/logs`);
      await allEvents(events);
      await runtime.takeOver({ valid: true });
      const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
      const mounts = [{ type: 'named', name: 'data', guest: '/data' }];
      const second = await client.post('/v1/sandboxes', request('second', { mounts }), START);
      await untilRunning(client, second);
      await client.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 1 });
      await client.post(`/v1/sandboxes/${second.body.id}/stop`, {});
      await untilStatus(client, second.body.id, 'stopped');
      // The default class of the cluster may not let storage grow.
      await client.post(`/v1/sandboxes/${second.body.id}/start`, {});
      await until(
        () => Promise.resolve([...proxy.used]),
        (used) => used.some((right) => right.endsWith('/persistentvolumeclaims patch')),
      );
      await client.delete(`/v1/sandboxes/${second.body.id}`);
      service.ctx.settings.volumePurgeAfterMs = 0;
      await until(
        () => client.delete(`/v1/volumes/${volume.id}`),
        ({ status }) => status === 200,
      );
      await until(
        () => namespace.core.listPersistentVolumeClaimForAllNamespaces(),
        ({ items }) => items.every(({ metadata }) => !metadata!.namespace!.startsWith(namespace.namespace)),
      );
      await onLostNode(pod!, async () => {
        await until(
          () => runtime.list().then(() => [...proxy.used]),
          (used) => used.some((right) => right.startsWith('kube-node-lease')),
        );
      });
    });
    await proxy.close();
    const isGrowth = (text: string) => text.startsWith('PATCH ') && text.includes('/persistentvolumeclaims/');
    expect(proxy.refused.filter((text) => !isGrowth(text))).toEqual([]);
    const used = new Set([...proxy.used].map((right) => grantFor(right, granted)));
    const unseen = [`${namespace.namespace} /${LATER}`, ...(namespaces === 'shared' ? [] : [BIND])];
    expect([...used, ...unseen].toSorted()).toEqual([...granted, OF_EVERYBODY].toSorted());
  });

  test('is told which right it lacks for namespaces of organizations', async () => {
    const api = namespace.library.KubernetesObjectApi.makeApiClient(namespace.config);
    const { proxy } = await applyRights({
      nodes: false,
      volumes: false,
      activity: false,
      namespaces: 'each-organization',
    });
    const connect = async () =>
      namespace.connect(randomUUID(), { kubeconfig: proxy.kubeconfig, namespaces: 'each-organization' }).then(
        async (runtime) => runtime.close().then(() => ''),
        (error: Error) => error.message,
      );
    for (const role of applied.filter(({ kind }) => kind!.endsWith('Role'))) {
      const { rules } = role as { rules: V1PolicyRule[] };
      for (const rule of rules) {
        await api.patch({ ...role, rules: rules.filter((other) => other !== rule) } as KubernetesObject);
        const [resource] = rule.resources!;
        const words =
          rule.resourceNames?.[0] === 'sandkeep-organization' ? 'no RoleBinding' : ` ${resource} in `;
        const message = await until(connect, (said) => said.includes(words));
        expect(message).toContain('sandkeep kubernetes manifest --namespaces each-organization');
        await api.patch(role);
      }
    }
    await until(connect, (said) => said === '');
    await proxy.close();
  });

  test('runs sandboxes without the rights on nodes', async () => {
    const { proxy } = await applyRights({ nodes: false, volumes: false, activity: false });
    await withService({ kubeconfig: proxy.kubeconfig }, async ({ service, client }) => {
      expect(service.runtime.capabilities.has('idle_timeout')).toBe(false);
      await untilRunning(client, await client.post('/v1/sandboxes', request('only'), START));
      const idle = await client.post(
        '/v1/sandboxes',
        request('idle', { lifecycle: { idle_timeout_secs: 60 } }),
      );
      expect([idle.status, idle.body.error.details.field]).toEqual([400, 'lifecycle.idle_timeout_secs']);
      const mounts = [{ type: 'named', name: 'data', guest: '/data' }];
      const mounting = await client.post('/v1/sandboxes', request('mounting', { mounts }));
      expect([mounting.status, mounting.body.error.details.field]).toEqual([400, 'mounts[0]']);
    });
    await proxy.close();
  });

  /** A node that never was, with a Pod of the installation on it. */
  async function onLostNode(other: V1Pod, work: () => Promise<void>): Promise<void> {
    const { core } = namespace;
    const name = `lost-${namespace.namespace}`;
    const body = {
      metadata: { name },
      spec: { unschedulable: true },
      status: { conditions: [{ type: 'Ready', status: 'Unknown' }] },
    };
    await core.createNode({ body });
    const labels = { ...other.metadata!.labels!, [SANDBOX_LABEL]: name, [RUN_LABEL]: name };
    const { namespace: where } = placeOf(other);
    await core.createNamespacedPod({
      namespace: where,
      body: {
        metadata: { name, labels },
        spec: { nodeName: name, containers: [{ name: 'sandbox', image: NODE_IMAGE }] },
      },
    });
    try {
      await work();
    } finally {
      await core
        .deleteNamespacedPod({ name, namespace: where, gracePeriodSeconds: 0 })
        .catch(() => undefined);
      await core.deleteNode({ name });
    }
  }
});

function withoutNamedResources(item: KubernetesObject): KubernetesObject {
  if (item.kind !== 'Role' && item.kind !== 'ClusterRole') return item;
  const { rules } = item as { rules: V1PolicyRule[] };
  return {
    ...item,
    rules: rules.filter(({ resourceNames }) => resourceNames === undefined),
  } as KubernetesObject;
}

function rightsOf(items: readonly KubernetesObject[]): Right[] {
  return items.flatMap(({ kind, metadata, ...rest }) => {
    if (kind !== 'Role' && kind !== 'ClusterRole') return [];
    const { rules } = rest as { rules: V1PolicyRule[] };
    const binding = items.find((item) => {
      const { roleRef } = item as V1RoleBinding;
      return item.kind === 'RoleBinding' && roleRef.kind === kind && roleRef.name === metadata?.name;
    });
    return rules.flatMap(({ apiGroups = [], resources = [], verbs }) =>
      verbs.map((verb) => `${binding?.metadata?.namespace ?? '*'} ${apiGroups[0]}/${resources[0]} ${verb}`),
    );
  });
}

/** The service has the same rights in the namespaces of organizations as in the first one. */
function grantFor(used: Right, granted: readonly Right[]): Right {
  const own = used.replace(/^(sandkeep-test-[a-z0-9]+)-[0-9a-f-]{36} /, '$1 ');
  const ofCluster = own.replace(/^\S+ /, '* ');
  return !granted.includes(own) && granted.includes(ofCluster) ? ofCluster : own;
}
