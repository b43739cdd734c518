import type { Activity } from '../runtime.js';
import type { Cluster } from './client.js';

interface Summary {
  pods?: { podRef?: { name?: string; namespace?: string }; cpu?: { usageCoreNanoSeconds?: number } }[];
}

/** Whether the service may read the summaries of kubelets. */
export async function mayReadSummaries({ authorization }: Cluster): Promise<boolean> {
  const { status } = await authorization.createSelfSubjectAccessReview({
    body: { spec: { resourceAttributes: { verb: 'get', resource: 'nodes', subresource: 'proxy' } } },
  });
  return status?.allowed ?? false;
}

/** The processor time of the Pods of a node, as its kubelet measures it. Empty when the kubelet does not answer. */
export async function readSummary(
  { core, namespace }: Cluster,
  node: string,
): Promise<Map<string, Activity>> {
  const text = await core
    .connectGetNodeProxyWithPath({ name: node, path: 'stats/summary' })
    .catch(() => '{}');
  const { pods = [] } = (typeof text === 'string' ? JSON.parse(text) : text) as Summary;
  return new Map(
    pods.flatMap(({ podRef, cpu }) => {
      const nanos = cpu?.usageCoreNanoSeconds;
      if (podRef?.namespace !== namespace || podRef.name === undefined || nanos === undefined) return [];
      return [[podRef.name, { cpuMicros: nanos / 1_000 }]];
    }),
  );
}
