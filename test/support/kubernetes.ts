import type { V1Pod } from '@kubernetes/client-node';
import { describe } from 'vitest';
import { openCluster, type Cluster } from '../../src/runtimes/kubernetes/client.js';
import { CONTAINER, SANDBOX_LABEL } from '../../src/runtimes/kubernetes/names.js';
import { KubernetesRuntime, type KubernetesOptions } from '../../src/runtimes/kubernetes/runtime.js';
import { registryReach } from '../../src/settings.js';
import { until } from './polling.js';
import type { TestOptions } from './service.js';

const KUBECONFIG = process.env['KUBECONFIG'];
/** An image with busybox that every node has. */
export const NODE_IMAGE = 'busybox:local';

const reason = await whyNot();

/**
 * Tests against a real cluster. Without one they are skipped with the reason; with SANDKEEP_TEST_KUBERNETES=required they
 * fail.
 */
export const describeKubernetes =
  reason === undefined || process.env['SANDKEEP_TEST_KUBERNETES'] === 'required'
    ? describe
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

/** A namespace of its own on the cluster. */
export interface TestNamespace extends Cluster {
  /** Options that put a test service on the cluster. */
  service(options?: Partial<KubernetesOptions>): Pick<TestOptions, 'runtime'>;
  connect(instanceId: string, options?: Partial<KubernetesOptions>): Promise<KubernetesRuntime>;
  podsOf(sandboxId: string): Promise<V1Pod[]>;
  remove(): Promise<void>;
}

export async function openNamespace(): Promise<TestNamespace> {
  const namespace = `sandkeep-test-${process.pid}-${Math.random().toString(36).slice(2, 8)}`;
  const cluster = await openCluster({ kubeconfig: KUBECONFIG, namespace });
  const { core } = cluster;
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  const connect = async (instanceId: string, options: Partial<KubernetesOptions> = {}) =>
    KubernetesRuntime.connect(instanceId, {
      ...{ kubeconfig: KUBECONFIG, namespace, network: 'trusted', nodeImages: [NODE_IMAGE] },
      registry: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }),
      ...options,
    });
  return {
    ...cluster,
    connect,
    service: (options) => ({ runtime: (instanceId) => connect(instanceId, options) }),
    podsOf: async (sandboxId) =>
      (await core.listNamespacedPod({ namespace, labelSelector: `${SANDBOX_LABEL}=${sandboxId}` })).items,
    remove: async () => {
      await until(
        () => core.listNamespacedPod({ namespace }),
        ({ items }) => items.length === 0,
        60_000,
      );
      await core.deleteNamespace({ name: namespace });
    },
  };
}

export function containerStatus({ status }: V1Pod) {
  return status?.containerStatuses?.find(({ name }) => name === CONTAINER);
}
