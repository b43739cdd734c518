import type { KubernetesObject } from '@kubernetes/client-node';
import { ExplainedError } from '../../lib/explained-error.js';
import type { Cluster } from './client.js';
import { FORBIDDEN, ignoreStatus, NOT_FOUND, statusOf } from './errors.js';
import { selectorOf } from './names.js';
import type { NamespaceChoice } from './namespace-choices.js';

const CHOICE = 'sandkeep.dev/namespaces';

/**
 * Throws ExplainedError when the choice has changed, and objects of the previous one are out of reach. These are Pods
 * in namespaces that are no longer watched, and claims in namespaces that no longer have Pods.
 */
export async function recordChoice(
  cluster: Cluster,
  instanceId: string,
  choice: NamespaceChoice,
): Promise<void> {
  const { coordination, namespace } = cluster;
  const name = `sandkeep-namespaces-${instanceId}`;
  const lease = await coordination.readNamespacedLease({ name, namespace }).catch(ignoreStatus(NOT_FOUND));
  const previous = lease?.metadata?.annotations?.[CHOICE] ?? 'shared';
  if (previous === choice) return;
  const isLeft = ({ metadata }: KubernetesObject) =>
    choice === 'shared'
      ? metadata?.namespace?.startsWith(`${namespace}-`) === true
      : metadata?.namespace === namespace;
  const pods = choice === 'shared' ? (await podsOf(cluster, instanceId)).filter(isLeft) : [];
  const claims = (await claimsOf(cluster, instanceId)).filter(isLeft);
  if (pods.length + claims.length > 0) {
    throw new ExplainedError(
      `${pods.length} Pods and ${claims.length} claims of volumes are where --kubernetes-namespaces ${previous} keeps them: use it, or delete these sandboxes and volumes with it first`,
    );
  }
  const resourceVersion = lease?.metadata?.resourceVersion;
  const metadata = {
    name,
    labels: { 'app.kubernetes.io/managed-by': 'sandkeep' },
    annotations: { [CHOICE]: choice },
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
  const body = { metadata, spec: {} };
  if (lease) await coordination.replaceNamespacedLease({ name, namespace, body });
  else await coordination.createNamespacedLease({ namespace, body });
}

async function podsOf({ core }: Cluster, instanceId: string): Promise<KubernetesObject[]> {
  const pods = core.listPodForAllNamespaces({ labelSelector: selectorOf(instanceId) });
  return (await pods.catch(explainUnseen)).items;
}

/** Without the right to claims there were none. */
async function claimsOf({ core }: Cluster, instanceId: string): Promise<KubernetesObject[]> {
  const claims = core.listPersistentVolumeClaimForAllNamespaces({ labelSelector: selectorOf(instanceId) });
  return (await claims.catch(ignoreStatus(FORBIDDEN)))?.items ?? [];
}

function explainUnseen(error: unknown): never {
  if (statusOf(error) !== FORBIDDEN) throw error;
  throw new ExplainedError(
    'each organization had a namespace of its own, and the account may not see whether they have Pods: use --kubernetes-namespaces each-organization, or keep its rights for the first start without it',
    { cause: error },
  );
}
