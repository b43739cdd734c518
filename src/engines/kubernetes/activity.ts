import type { V1Pod } from '@kubernetes/client-node';
import type { Activity } from '../../engine/runtime.js';
import type { Cluster } from './client.js';
import { CONTAINER } from './names.js';

interface PodSummary {
  podRef?: { name?: string; namespace?: string };
  cpu?: { time?: string; usageCoreNanoSeconds?: number };
  memory?: { workingSetBytes?: number };
  network?: { rxBytes?: number; txBytes?: number };
  'ephemeral-storage'?: { usedBytes?: number };
  process_stats?: { process_count?: number };
}

interface Summary {
  pods?: PodSummary[];
}

/** Kubelets measure every ten seconds. */
const SHARED_MS = 5_000;

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
    pods.flatMap((pod) => {
      const { podRef } = pod;
      const activity = activityOf(pod);
      if (podRef?.name === undefined || activity === undefined) return [];
      if (!places.has(`${podRef.namespace}/${podRef.name}`)) return [];
      return [[podRef.name, activity]];
    }),
  );
}

function activityOf({ cpu, memory, network, process_stats, ...pod }: PodSummary): Activity | undefined {
  const nanos = cpu?.usageCoreNanoSeconds;
  if (nanos === undefined) return undefined;
  const found = {
    memoryBytes: memory?.workingSetBytes,
    receivedBytes: network?.rxBytes,
    sentBytes: network?.txBytes,
    diskBytes: pod['ephemeral-storage']?.usedBytes,
    processes: process_stats?.process_count,
  };
  const known = Object.entries(found).filter(([, value]) => typeof value === 'number');
  return {
    cpuMicros: nanos / 1_000,
    ...measured(Date.parse(cpu?.time ?? '')),
    ...(Object.fromEntries(known) as Partial<Activity>),
  };
}

/** A line of `metrics/cadvisor`: name, path of the control group, value, time. */
const FIGURE =
  /^container_(cpu_usage_seconds_total|memory_working_set_bytes)\{(?:[^}]*,)?id="([^"]*)"[^}]*\} (\S+)(?: (\d+))?/gm;
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
  const memory = new Map<string, number>();
  for (const [, figure, path, value, millis] of text.matchAll(FIGURE)) {
    const name = names.get(CONTAINER_ID.exec(path!)?.[1] ?? '')?.metadata!.name;
    if (name === undefined) continue;
    if (figure === 'memory_working_set_bytes') memory.set(name, Number(value));
    else {
      // One line for all processors, or one for each.
      const cpuMicros = (found.get(name)?.cpuMicros ?? 0) + Number(value) * 1_000_000;
      found.set(name, { cpuMicros, ...measured(Number(millis)) });
    }
  }
  // Before the first measurement of a container its memory is zero, and there is no line of its processor time.
  for (const [name, activity] of found) {
    const memoryBytes = memory.get(name);
    if (memoryBytes !== undefined) found.set(name, { ...activity, memoryBytes });
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

const answersOf = new WeakMap<Cluster, Map<string, { text: Promise<string | undefined>; until: number }>>();

/**
 * Undefined when the kubelet does not answer. The callers of some seconds share an answer, which has all Pods of the
 * node.
 */
async function readProxied(cluster: Cluster, node: string, path: string): Promise<string | undefined> {
  const answers =
    answersOf.get(cluster) ?? new Map<string, { text: Promise<string | undefined>; until: number }>();
  answersOf.set(cluster, answers);
  const now = performance.now();
  for (const [key, { until }] of answers) if (until <= now) answers.delete(key);
  const key = `${node} ${path}`;
  const shared = answers.get(key) ?? { text: askKubelet(cluster, node, path), until: now + SHARED_MS };
  answers.set(key, shared);
  return shared.text;
}

async function askKubelet({ core }: Cluster, node: string, path: string): Promise<string | undefined> {
  const answer: unknown = await core.connectGetNodeProxyWithPath({ name: node, path }).catch(() => undefined);
  if (answer === undefined || typeof answer === 'string') return answer;
  return JSON.stringify(answer);
}
