import type { V1Node, V1NodeCondition, V1NodeStatus } from '@kubernetes/client-node';
import type { Capacity, Runtime } from '../../engine/runtime.js';
import type { Cluster } from './client.js';
import { FORBIDDEN, ignoreStatus, NOT_FOUND, statusOf } from './errors.js';
import { instantOf, type NodeLoss } from './pod-state.js';
import { quantity } from './quantity.js';
import { WatchCache } from './watch-cache.js';

const MIB = 1024 * 1024;
/** The namespace of the leases that nodes renew. */
const LEASES = 'kube-node-lease';
/** The most that a worker can have, and its capacity where the service may not read nodes. */
const MOST: Capacity = { vcpus: 1_000_000, memoryMib: 999_999_999, diskMib: null };

/** The nodes of the cluster: what they can hold, and whether they live. */
export class Nodes {
  private readonly leases = new Map<string, Promise<NodeLoss>>();

  private constructor(
    private readonly cluster: Cluster,
    private readonly cache: WatchCache<V1Node> | undefined,
  ) {}

  /** Without the right to list nodes it knows nothing of them. */
  static async open(cluster: Cluster): Promise<Nodes> {
    const { core } = cluster;
    try {
      await core.listNode({ limit: 1 });
    } catch (error) {
      if (statusOf(error) === FORBIDDEN) return new Nodes(cluster, undefined);
      throw error;
    }
    const cache = new WatchCache<V1Node>(cluster, {
      path: '/api/v1/nodes',
      list: (page) => core.listNode(page),
    });
    await cache.relist();
    return new Nodes(cluster, cache);
  }

  get isKnown(): boolean {
    return this.cache !== undefined;
  }

  /** The sum of what sandboxes can be given. */
  get capacity(): Capacity {
    const nodes = this.usable();
    if (nodes === undefined) return MOST;
    return {
      vcpus: Math.min(Math.floor(total(nodes.map(({ vcpus }) => vcpus))), MOST.vcpus),
      memoryMib: Math.min(Math.floor(total(nodes.map(({ memoryMib }) => memoryMib))), MOST.memoryMib),
      diskMib: null,
    };
  }

  /** The largest sandbox that one node can hold. */
  get bounds(): Omit<Runtime['bounds'], 'sharedCpuMillis'> {
    const nodes = this.usable();
    const most = (amounts: number[]) => Math.floor(Math.max(0, ...amounts));
    return {
      vcpus: nodes ? most(nodes.map(({ vcpus }) => vcpus)) : MOST.vcpus,
      memoryMib: nodes ? most(nodes.map(({ memoryMib }) => memoryMib)) : MOST.memoryMib,
      // Container runtimes refuse less.
      smallestMemoryMib: 6,
    };
  }

  /** The processor of most nodes, in the words of Kubernetes. */
  get architecture(): string | undefined {
    const counts = new Map<string, number>();
    for (const { architecture } of this.usable() ?? []) {
      counts.set(architecture, (counts.get(architecture) ?? 0) + 1);
    }
    return [...counts].toSorted(([, a], [, b]) => b - a)[0]?.[0];
  }

  get count(): number | undefined {
    return this.usable()?.length;
  }

  /** Undefined: the node lives, or nothing is known of it. */
  async lossOf(name: string | undefined): Promise<NodeLoss | undefined> {
    if (this.cache === undefined || name === undefined) return undefined;
    const node = this.cache.get(name);
    const ready = readyOf(node?.status);
    if (node && ready?.status !== 'Unknown') {
      this.leases.delete(name);
      return undefined;
    }
    const heartbeat = instantOf(ready?.lastHeartbeatTime) ?? null;
    const known = this.leases.get(name) ?? this.readLease(name, heartbeat);
    this.leases.set(name, known);
    return known;
  }

  /** Calls `listener` when a node is lost, comes back, comes or goes. Nodes report more often than that. */
  subscribe(listener: () => void): () => void {
    const { cache } = this;
    if (cache === undefined) return () => undefined;
    let before = this.living();
    return cache.subscribe(() => {
      const now = this.living();
      if (now === before) return;
      before = now;
      listener();
    });
  }

  async close(): Promise<void> {
    await this.cache?.close();
  }

  /** A node renews its lease every ten seconds, and writes its status less often. */
  private async readLease(name: string, heartbeat: NodeLoss['lastSeen']): Promise<NodeLoss> {
    try {
      const lease = await this.cluster.coordination
        .readNamespacedLease({ name, namespace: LEASES })
        .catch(ignoreStatus(FORBIDDEN, NOT_FOUND));
      return { lastSeen: instantOf(lease?.spec?.renewTime) ?? heartbeat };
    } catch (error) {
      this.leases.delete(name);
      throw error;
    }
  }

  private living(): string {
    return (this.cache?.known() ?? [])
      .filter(({ status }) => readyOf(status)?.status !== 'Unknown')
      .map(({ metadata }) => metadata?.name ?? '')
      .toSorted()
      .join();
  }

  /** Also while the API server cannot be reached: a create must not fail for it. */
  private usable(): { vcpus: number; memoryMib: number; architecture: string }[] | undefined {
    return this.cache
      ?.known()
      .filter(({ spec }) => spec?.unschedulable !== true)
      .map(({ status, metadata }) => ({
        vcpus: quantity(status?.allocatable?.['cpu']),
        memoryMib: quantity(status?.allocatable?.['memory']) / MIB,
        architecture: metadata?.labels?.['kubernetes.io/arch'] ?? status?.nodeInfo?.architecture ?? '',
      }));
  }
}

function readyOf(status: V1NodeStatus | undefined): V1NodeCondition | undefined {
  return status?.conditions?.find(({ type }) => type === 'Ready');
}

function total(amounts: readonly number[]): number {
  return amounts.reduce((sum, amount) => sum + amount, 0);
}
