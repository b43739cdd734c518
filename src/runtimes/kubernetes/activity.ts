import type { V1Pod } from '@kubernetes/client-node';
import type { Activity } from '../runtime.js';
import type { Cluster } from './client.js';
import { CONTAINER } from './names.js';

interface Cpu {
  time?: string;
  usageCoreNanoSeconds?: number;
}

interface Summary {
  pods?: { podRef?: { name?: string; namespace?: string }; cpu?: Cpu }[];
}

/** Whether the service may read the figures of kubelets. */
export async function mayReadSummaries({ authorization }: Cluster): Promise<boolean> {
  const { status } = await authorization.createSelfSubjectAccessReview({
    body: { spec: { resourceAttributes: { verb: 'get', resource: 'nodes', subresource: 'proxy' } } },
  });
  return status?.allowed ?? false;
}

/**
 * The processor time of Pods of one node by their names, as its kubelet measures it. Some kubelets cannot tell which
 * container belongs to which Pod, so that their summary has no Pods. Their figures of containers serve then.
 */
export async function readActivity(
  cluster: Cluster,
  node: string,
  pods: readonly V1Pod[],
): Promise<Map<string, Activity>> {
  const places = new Set(pods.map(({ metadata }) => `${metadata!.namespace}/${metadata!.name}`));
  const summary = await readSummary(cluster, node, places);
  const isMissing = pods.some(({ metadata }) => !summary.has(metadata!.name!));
  return isMissing ? new Map([...(await readContainers(cluster, node, pods)), ...summary]) : summary;
}

async function readSummary(
  cluster: Cluster,
  node: string,
  places: ReadonlySet<string>,
): Promise<Map<string, Activity>> {
  const text = await readProxied(cluster, node, 'stats/summary');
  const { pods = [] } = (text === undefined ? {} : JSON.parse(text)) as Summary;
  return new Map(
    pods.flatMap(({ podRef, cpu }) => {
      const nanos = cpu?.usageCoreNanoSeconds;
      if (podRef?.name === undefined || nanos === undefined) return [];
      if (!places.has(`${podRef.namespace}/${podRef.name}`)) return [];
      return [[podRef.name, { cpuMicros: nanos / 1_000, ...measured(Date.parse(cpu?.time ?? '')) }]];
    }),
  );
}

const CPU_LINE = /^container_cpu_usage_seconds_total\{(?:[^}]*,)?id="([^"]*)"[^}]*\} (\S+)(?: (\d+))?/gm;
/** The last part of the path of a control group, such as `cri-containerd-<id>.scope`. */
const CONTAINER_ID = /([0-9a-f]{64})(?:\.scope)?$/;

async function readContainers(
  cluster: Cluster,
  node: string,
  pods: readonly V1Pod[],
): Promise<Map<string, Activity>> {
  const names = new Map(pods.flatMap((pod) => (containerIdOf(pod) ? [[containerIdOf(pod)!, pod]] : [])));
  const text = (await readProxied(cluster, node, 'metrics/cadvisor')) ?? '';
  const found = new Map<string, Activity>();
  for (const [, path, seconds, millis] of text.matchAll(CPU_LINE)) {
    const name = names.get(CONTAINER_ID.exec(path!)?.[1] ?? '')?.metadata!.name;
    if (name === undefined) continue;
    // One line for all processors, or one for each.
    const before = found.get(name)?.cpuMicros ?? 0;
    found.set(name, { cpuMicros: before + Number(seconds) * 1_000_000, ...measured(Number(millis)) });
  }
  return found;
}

function measured(measuredAt: number): Pick<Activity, 'measuredAt'> {
  return Number.isNaN(measuredAt) ? {} : { measuredAt };
}

/** `docker://<id>` */
function containerIdOf({ status }: V1Pod): string | undefined {
  const container = status?.containerStatuses?.find(({ name }) => name === CONTAINER);
  return container?.containerID?.split('://')[1];
}

/** Undefined when the kubelet does not answer. */
async function readProxied({ core }: Cluster, node: string, path: string): Promise<string | undefined> {
  const answer: unknown = await core.connectGetNodeProxyWithPath({ name: node, path }).catch(() => undefined);
  if (answer === undefined || typeof answer === 'string') return answer;
  return JSON.stringify(answer);
}
