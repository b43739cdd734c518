import { setMaxListeners } from 'node:events';
import { sleep } from '../../src/lib/sleep.js';
import type { Change, ObjectStore, Stored } from './object-store.js';

export interface NodeTimes {
  startMs: number;
  stopMs: number;
}

const NODE_CPUS = 256;

/** Starts and ends Pods as kubelets do, without containers: the scheduler and the nodes of a simulated cluster. */
export class SimulatedNodes {
  private readonly closing = new AbortController();
  /** Pods whose end has begun. */
  private readonly ending = new Set<string>();

  constructor(
    private readonly store: ObjectStore,
    private readonly times: NodeTimes,
    names: readonly string[],
  ) {
    setMaxListeners(0, this.closing.signal);
    for (const name of names) store.put('/api/v1/nodes', nodeOf(name));
    store.subscribe((change) => void this.follow(change, names));
  }

  close(): void {
    this.closing.abort();
  }

  /** Ends the container of a Pod by itself. */
  end(collection: string, name: string, exitCode: number): void {
    const pod = this.store.get(collection, name);
    if (pod) this.store.put(collection, { ...pod, status: { ...pod.status, ...endedStatus(pod, exitCode) } });
  }

  private async follow({ type, collection, object }: Change, nodes: readonly string[]): Promise<void> {
    if (!collection.endsWith('/pods') || type === 'DELETED') return;
    const { name, deletionTimestamp, uid } = object.metadata;
    if (type === 'ADDED') {
      await sleep(this.times.startMs, this.closing.signal);
      const pod = this.store.get(collection, name);
      if (!pod || pod.metadata.deletionTimestamp !== undefined || this.closing.signal.aborted) return;
      const nodeName = nodes[this.store.version % nodes.length];
      this.store.put(collection, { ...pod, spec: { ...pod.spec, nodeName }, status: runningStatus() });
      return;
    }
    if (deletionTimestamp === undefined || this.ending.has(uid!)) return;
    this.ending.add(uid!);
    await sleep(this.times.stopMs, this.closing.signal);
    const pod = this.store.get(collection, name);
    if (!pod || this.closing.signal.aborted) return;
    const ended = pod.status?.['phase'] === 'Running' ? endedStatus(pod, 143) : {};
    const metadata = { ...pod.metadata, deletionGracePeriodSeconds: 0 };
    this.store.put(collection, { ...pod, metadata, status: { ...pod.status, ...ended } });
    if ((metadata.finalizers ?? []).length === 0) this.store.delete(collection, name);
  }
}

function seconds(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`;
}

function runningStatus(): Record<string, unknown> {
  const startedAt = seconds();
  const condition = (type: string) => ({ type, status: 'True', lastTransitionTime: startedAt });
  return {
    phase: 'Running',
    conditions: ['Initialized', 'Ready', 'ContainersReady', 'PodScheduled'].map(condition),
    hostIP: '10.200.1.2',
    podIP: '10.201.1.2',
    startTime: startedAt,
    qosClass: 'Guaranteed',
    containerStatuses: [
      {
        name: 'sandbox',
        ready: true,
        started: true,
        restartCount: 0,
        image: 'busybox:local',
        imageID: 'docker://sha256:0000000000000000000000000000000000000000000000000000000000000000',
        containerID: 'docker://0000000000000000000000000000000000000000000000000000000000000000',
        state: { running: { startedAt } },
      },
    ],
  };
}

function endedStatus({ status }: Stored, exitCode: number): Record<string, unknown> {
  const [container] = (status?.['containerStatuses'] ?? []) as {
    state: { running?: { startedAt: string } };
  }[];
  const startedAt = container?.state.running?.startedAt;
  if (startedAt === undefined) return {};
  const terminated = {
    exitCode,
    reason: exitCode === 0 ? 'Completed' : 'Error',
    startedAt,
    finishedAt: seconds(),
  };
  return {
    phase: exitCode === 0 ? 'Succeeded' : 'Failed',
    containerStatuses: [{ ...container, ready: false, state: { terminated } }],
  };
}

function nodeOf(name: string): Stored {
  const amounts = { cpu: String(NODE_CPUS), memory: '1024Gi', pods: '250', 'ephemeral-storage': '10Ti' };
  const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { 'kubernetes.io/arch': architecture, 'kubernetes.io/os': 'linux' } },
    spec: {},
    status: {
      allocatable: amounts,
      capacity: amounts,
      nodeInfo: { architecture },
      conditions: [{ type: 'Ready', status: 'True', lastHeartbeatTime: seconds() }],
    },
  };
}
