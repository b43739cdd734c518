import type { KubernetesObject, V1Pod } from '@kubernetes/client-node';
import { describe, expect } from 'vitest';
import { openCluster, type Cluster } from '../../src/engines/kubernetes/client.js';
import { manifest } from '../../src/engines/kubernetes/manifest.js';
import { CONTAINER, SANDBOX_LABEL } from '../../src/engines/kubernetes/names.js';
import type { NamespaceChoice } from '../../src/engines/kubernetes/namespace-choices.js';
import { KubernetesRuntime, type KubernetesOptions } from '../../src/engines/kubernetes/runtime.js';
import { registryReach } from '../../src/settings.js';
import type { Answer } from './answer.js';
import type { Client } from './client.js';
import { openEvents, type ServerEvent } from './event-stream.js';
import { until, untilStatus } from './polling.js';
import type { TestOptions } from './service.js';

const KUBECONFIG = process.env['KUBECONFIG'];
/** A start of a Pod takes 3 s, and minutes where its node has no processor. A test waits for several. */
const TEST_MS = 600_000;
const START_MS = 300_000;
const MOST_RUNS = 5;
/** An image with busybox that every node has. */
export const NODE_IMAGE = 'busybox:local';

const reason = await whyNot();

/**
 * Tests against a real cluster. Without one they are skipped with the reason; with SANDKEEP_TEST_KUBERNETES=required
 * they fail.
 */
export const describeKubernetes =
  reason === undefined || process.env['SANDKEEP_TEST_KUBERNETES'] === 'required'
    ? (name: string, body: () => void) => describe(name, { timeout: TEST_MS }, body)
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests of the Kubernetes runtime are SKIPPED: ${reason}`);

async function whyNot(): Promise<string | undefined> {
  if (KUBECONFIG === undefined) return 'KUBECONFIG names no cluster';
  try {
    const { core } = await openCluster({ kubeconfig: KUBECONFIG });
    await core.listNode({ limit: 1 });
    return undefined;
  } catch (error) {
    return `the cluster of ${KUBECONFIG} cannot be used (${(error as Error).message})`;
  }
}

/** A namespace of its own on the cluster. Those of organizations have names that begin with it. */
export interface TestNamespace extends Cluster {
  /** Options that put a test service on the cluster. */
  service(options?: Partial<KubernetesOptions>): Pick<TestOptions, 'runtime'>;
  connect(instanceId: string, options?: Partial<KubernetesOptions>): Promise<KubernetesRuntime>;
  podsOf(sandboxId: string): Promise<V1Pod[]>;
  /** Those of organizations too. */
  pods(): Promise<V1Pod[]>;
  organizations(): Promise<string[]>;
  remove(): Promise<void>;
}

export async function openNamespace(choice: NamespaceChoice = 'shared'): Promise<TestNamespace> {
  const namespace = `sandkeep-test-${Math.random().toString(36).slice(2, 10)}`;
  const cluster = await openCluster({ kubeconfig: KUBECONFIG, namespace });
  const { core } = cluster;
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  // A cluster makes it some time after the namespace, and refuses Pods before.
  await until(
    () => core.listNamespacedServiceAccount({ namespace }),
    ({ items }) => items.length > 0,
  );
  const applied = choice === 'shared' ? [] : await applyRights(cluster, choice);
  const organizations = async () =>
    (await core.listNamespace()).items
      .map(({ metadata }) => metadata!.name!)
      .filter((name) => name.startsWith(`${namespace}-`));
  const podsIn = async (labelSelector = '') =>
    (await core.listPodForAllNamespaces({ labelSelector })).items.filter(({ metadata }) =>
      metadata!.namespace!.startsWith(namespace),
    );
  const pods = async () => podsIn();
  const connect = async (instanceId: string, options: Partial<KubernetesOptions> = {}) =>
    KubernetesRuntime.connect(instanceId, {
      kubeconfig: KUBECONFIG,
      namespace,
      network: 'trusted',
      nodeImages: [NODE_IMAGE],
      registry: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }),
      namespaces: choice,
      ...options,
    });
  return {
    ...cluster,
    connect,
    service: (options) => ({ runtime: (instanceId) => connect(instanceId, options) }),
    organizations,
    podsOf: async (sandboxId) => podsIn(`${SANDBOX_LABEL}=${sandboxId}`),
    pods,
    remove: async () => {
      await until(pods, (left) => left.length === 0, 60_000);
      for (const name of [namespace, ...(await organizations())]) await core.deleteNamespace({ name });
      await removeRights(cluster, applied);
    },
  };
}

/** Those of the command, for the account `sandkeep`. */
async function applyRights(cluster: Cluster, namespaces: NamespaceChoice): Promise<KubernetesObject[]> {
  const api = cluster.library.KubernetesObjectApi.makeApiClient(cluster.config);
  const items = manifest({
    namespace: cluster.namespace,
    name: 'sandkeep',
    namespaces,
    nodes: false,
    volumes: true,
    activity: false,
  }).filter(({ kind }) => kind !== 'Namespace');
  for (const item of items) await api.create(item);
  return items;
}

async function removeRights(cluster: Cluster, items: readonly KubernetesObject[]): Promise<void> {
  const api = cluster.library.KubernetesObjectApi.makeApiClient(cluster.config);
  for (const item of items) if (item.metadata?.namespace === undefined) await api.delete(item);
}

/** Waits until the API server refuses Pods: first its cache gets the range. */
export async function limitMemory(
  { core, namespace }: TestNamespace,
  { max, refused }: { max: string; refused: string },
): Promise<void> {
  const limits = [{ type: 'Container', max: { memory: max } }];
  await core.createNamespacedLimitRange({
    namespace,
    body: { metadata: { name: 'of-operator' }, spec: { limits } },
  });
  const resources = { limits: { memory: refused } };
  const body = {
    metadata: { generateName: 'tried-' },
    spec: { containers: [{ name: 'main', image: NODE_IMAGE, resources }] },
  };
  await until(
    () => core.createNamespacedPod({ namespace, body, dryRun: 'All' }).then(() => '', String),
    (refusal) => refusal.includes('maximum memory usage'),
  );
}

/**
 * Waits for the start that a request has asked for, and returns the sandbox. A request with `wait_for` gives up a start
 * that waits for room, and a busy cluster may have none for minutes.
 */
export async function untilRunning(client: Client, asked: Answer): Promise<any> {
  const { body } = await until(
    async () => (asked.body.status === 'starting' ? client.get(`/v1/sandboxes/${asked.body.id}`) : asked),
    (answer) => answer.body.status !== 'starting',
    START_MS,
  );
  expect(body.status, JSON.stringify(body)).toBe('running');
  return body;
}

/**
 * The events of the log of a sandbox once they are `isWhole`. The engine of a busy node reports the end of a command
 * before it has written its last output. So a log that ends early is read again. Two nodes on one machine have one
 * folder of logs, and each removes those of the other's Pods once a minute. The stream of such a log ends without
 * `end`, and the sandbox runs again.
 */
export async function wholeLog(
  client: Client,
  id: string,
  isWhole: (events: readonly ServerEvent[]) => boolean,
  query = '',
): Promise<ServerEvent[]> {
  const read = async () => {
    const all: ServerEvent[] = [];
    for await (const event of (await openEvents(client, `/v1/sandboxes/${id}/logs${query}`)).events) {
      if (event.comment === undefined) all.push(event);
      if (isWhole(all)) break;
    }
    return all;
  };
  for (let run = 1; run <= MOST_RUNS; run += 1) {
    const events = await until(read, (all) => isWhole(all) || !hasEnd(all));
    if (isWhole(events)) return events;
    await runAgain(client, id);
  }
  throw new Error(`the nodes cannot read the logs of ${MOST_RUNS} runs`);
}

export async function runAgain(client: Client, id: string): Promise<void> {
  const { status } = (await client.get(`/v1/sandboxes/${id}`)).body;
  if (status === 'running') {
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    await untilStatus(client, id, 'stopped');
  }
  await client.post(`/v1/sandboxes/${id}/start`);
  await untilStatus(client, id, status);
}

export const textOf = (events: readonly ServerEvent[]) => events.map(({ data }) => data.text ?? '').join('');

export function hasEnd(events: readonly ServerEvent[]): boolean {
  return events.at(-1)?.event === 'end';
}

export function containerStatus({ status }: V1Pod) {
  return status?.containerStatuses?.find(({ name }) => name === CONTAINER);
}
