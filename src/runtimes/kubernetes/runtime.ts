import type { V1Pod } from '@kubernetes/client-node';
import { EventEmitter, on } from 'node:events';
import { v5 as uuidv5 } from 'uuid';
import { ExplainedError } from '../../lib/explained-error.js';
import { SCRIPTS_DIRECTORY } from '../docker/files/scripts.js';
import {
  StartRefusedError,
  type Activity,
  type Capability,
  type Capacity,
  type Holding,
  type LogChunk,
  type LogQuery,
  type Run,
  type Runtime,
} from '../runtime.js';
import { mayReadSummaries, readActivity } from './activity.js';
import { Claims, type StorageOptions } from './claims.js';
import { openCluster, type Cluster, type ClusterAddress } from './client.js';
import { CONFLICT, clusterMessage, FORBIDDEN, ignoreStatus, INVALID, NOT_FOUND, statusOf } from './errors.js';
import { PodGuests } from './guests.js';
import { followLog } from './logs.js';
import {
  FILES_ANNOTATION,
  FILES_AWAITED,
  FILES_IN_PLACE,
  FINALIZER,
  ORG_LABEL,
  podName,
  RUN_LABEL,
  SANDBOX_LABEL,
  selectorOf,
} from './names.js';
import type { NetworkChoice } from './network/choices.js';
import { ClusterNetwork } from './network/cluster-network.js';
import { Nodes } from './nodes.js';
import { podOf } from './pod.js';
import { stateOf, type PodState } from './pod-state.js';
import { populatePod } from './populate-pod.js';
import { PodPrograms } from './programs.js';
import { PullSecrets } from './pull-secrets.js';
import { WatchCache } from './watch-cache.js';

export interface KubernetesOptions extends ClusterAddress {
  runtimeClass?: string | undefined;
  /** For the security profile `restricted`. Default: the other one. */
  restrictedRuntimeClass?: string | undefined;
  network: NetworkChoice;
  /** Empty: every private address. */
  clusterCidrs?: readonly string[];
  /** Nothing of it is run. */
  probeImage?: string | undefined;
  nodeImages?: readonly string[];
  /** How many times the vCPUs of a node its sandboxes can be limited to. Default: 1. */
  cpuOvercommit?: number | undefined;
  storage?: StorageOptions;
  capacity?: Partial<Capacity>;
  /** For sandboxes without a disk size. 0: no bound. */
  defaultDiskMib?: number | undefined;
}

/** The most that a worker can have. */
const MOST_VCPUS = 1_000_000;
const PROBE_IMAGE = 'registry.k8s.io/pause:3.10';
/** Another try would get the same answer. */
const REFUSALS = new Set([400, FORBIDDEN, INVALID]);
const ENGINE_NAMESPACE = '8a8f0f0e-52f4-4d0e-9f3b-0a6b1c4d7e21';
const SEEN_LIMIT_MS = 10_000;
/** The API server reports an end late, and a node that is lost later still. */
const STOP_LIMIT_MS = 120_000;
const REMOVE_LIMIT_MS = 30_000;
const SWEEP_EVERY_MS = 1_000;
/** Zero would remove the object before the node has ended the processes. */
const KILL_SECS = 1;
/** The service finds the processor of nodes that it may not read by its own. */
const OWN_ARCHITECTURE: Record<string, string> = { x64: 'amd64', arm64: 'arm64' };

/** Runs sandboxes as Pods of a Kubernetes cluster, one for each run. The scheduler of the cluster places them. */
export class KubernetesRuntime implements Runtime {
  readonly name = 'kubernetes';
  readonly listsSome = true;
  readonly description: string;
  readonly machine: string;
  private readonly guests: PodGuests;
  private readonly secrets: PullSecrets;
  private readonly holdings = new WeakMap<V1Pod, Holding>();
  private sweptAt = -Infinity;

  private constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    private readonly options: KubernetesOptions,
    readonly engineId: string,
    private readonly pods: WatchCache<V1Pod>,
    private readonly nodes: Nodes,
    private readonly programs: PodPrograms,
    private readonly network: ClusterNetwork,
    version: string,
    private readonly readsActivity: boolean,
    readonly volumes: Claims | undefined,
  ) {
    const { namespace, server } = cluster;
    this.machine = `${new URL(server).host}/${namespace}`;
    this.guests = new PodGuests(cluster, (name) => addedPathOf(this.pods.get(name)));
    this.secrets = new PullSecrets(cluster, instanceId);
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    const nodesText =
      nodes.count === undefined ? 'nodes that the service may not read' : `${nodes.count} nodes`;
    this.description = `kubernetes: Pods${kind} in the namespace ${namespace} of Kubernetes ${version}, ${nodesText}, network: ${network.description}`;
  }

  static async connect(instanceId: string, options: KubernetesOptions): Promise<KubernetesRuntime> {
    const cluster = await openCluster(options);
    const { core, namespace, library, config } = cluster;
    const found = await core.readNamespace({ name: namespace }).catch(ignoreStatus(NOT_FOUND));
    if (!found) {
      throw new ExplainedError(
        `the cluster has no namespace "${namespace}": create it, or name another with --kubernetes-namespace`,
      );
    }
    const nodes = await Nodes.open(cluster);
    const architecture = nodes.architecture ?? OWN_ARCHITECTURE[process.arch] ?? process.arch;
    const programs = new PodPrograms(cluster, architecture);
    await programs.ensure();
    const network = await ClusterNetwork.open(cluster, {
      ...{ instanceId, architecture, programs: programs.volume },
      ...{ choice: options.network, clusterCidrs: options.clusterCidrs ?? [] },
      ...{ image: options.probeImage ?? PROBE_IMAGE, runtimeClass: options.runtimeClass },
    });
    const pods = new WatchCache<V1Pod>(cluster, {
      path: `/api/v1/namespaces/${namespace}/pods`,
      labelSelector: selectorOf(instanceId),
      groupOf: (pod) => idsOf(pod).sandboxId,
      list: (page) => core.listNamespacedPod({ namespace, ...page }),
    });
    await pods.relist();
    const { gitVersion } = await new library.VersionApi(
      library.createConfiguration({
        baseServer: new library.ServerConfiguration(cluster.server, {}),
        authMethods: { default: config },
      }),
    ).getCode();
    return new KubernetesRuntime(
      cluster,
      instanceId,
      options,
      uuidv5(`${instanceId} ${found.metadata!.uid}`, ENGINE_NAMESPACE),
      pods,
      nodes,
      programs,
      network,
      gitVersion,
      await mayReadSummaries(cluster),
      await Claims.open(cluster, instanceId, options.storage ?? {}),
    );
  }

  get capabilities(): ReadonlySet<Capability> {
    return new Set<Capability>([
      ...(['disk_size', 'tmpfs', 'scripts', 'patches', 'registry_credentials'] as const),
      ...(this.readsActivity ? (['idle_timeout'] as const) : []),
      ...(this.volumes?.capabilities ?? []),
      ...this.network.capabilities,
    ]);
  }

  get capacity(): Capacity {
    const { vcpus, ...nodes } = this.nodes.capacity;
    const all = Math.min(vcpus * (this.options.cpuOvercommit ?? 1), MOST_VCPUS);
    return { ...nodes, vcpus: all, ...this.options.capacity };
  }

  /** A limit of the operator holds for all nodes together, which the scheduler does not know. */
  get placesRuns(): boolean {
    return Object.keys(this.options.capacity ?? {}).length === 0;
  }

  get bounds(): Runtime['bounds'] {
    return this.nodes.bounds;
  }

  async takeOver(): Promise<void> {
    await this.pods.relist();
    await this.volumes?.relist();
    await this.secrets.takeOver();
    await this.network.policies?.takeOver();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    const name = podName(run.runId);
    const own = this.pods.get(name);
    if (own) return this.continueStart(run, own);
    for (const older of this.podsOf(run.sandboxId)) await this.removeEnded(older);
    await this.programs.ensure();
    await this.volumes?.ensure(run);
    if (signal.aborted) return;
    // The policy and the Secret stay until the list has the Pod.
    const startPod = async () =>
      this.secrets.around(run, async (pullSecret) => {
        await this.create(run, pullSecret);
        await this.pods.until(name, (pod) => pod !== undefined, SEEN_LIMIT_MS, signal);
      });
    const { policies } = this.network;
    try {
      await (policies ? policies.around(run, startPod) : startPod());
    } catch (error) {
      if (!REFUSALS.has(statusOf(error) ?? 0)) throw error;
      throw new StartRefusedError(`the cluster refused the Pod: ${clusterMessage(error)}`, { cause: error });
    }
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    for (const pod of this.podsOf(sandboxId)) {
      await this.end(pod, graceMs > 0 ? Math.ceil(graceMs / 1_000) : KILL_SECS);
    }
  }

  async destroy(sandboxId: string): Promise<void> {
    for (const pod of this.podsOf(sandboxId)) {
      if (!hasEnded(await this.stateOf(pod))) await this.end(pod, KILL_SECS);
      await this.remove(pod.metadata!.name!);
    }
  }

  async dropRecord({ runId }: Holding): Promise<void> {
    await this.dropFinalizer(podName(runId));
  }

  async list(sandboxIds?: ReadonlySet<string>): Promise<Holding[]> {
    this.pods.assertReached();
    const pods = sandboxIds ? [...sandboxIds].flatMap((id) => this.pods.of(id)) : this.pods.values();
    const latest = new Map<string, V1Pod>();
    for (const pod of pods) {
      const { sandboxId, runId } = idsOf(pod);
      const other = latest.get(sandboxId);
      if (!other || idsOf(other).runId < runId) latest.set(sandboxId, pod);
    }
    if (performance.now() - this.sweptAt >= SWEEP_EVERY_MS) await this.sweep();
    return Promise.all([...latest.values()].map(async (pod) => this.holdingOf(pod)));
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    const pods = sandboxIds.flatMap((id) => this.latestOf(id) ?? []);
    const byNode = new Map<string, V1Pod[]>();
    for (const pod of pods) {
      const node = pod.spec?.nodeName;
      if (node !== undefined) byNode.set(node, [...(byNode.get(node) ?? []), pod]);
    }
    const found = await Promise.all(
      [...byNode].map(async ([node, ofNode]) => readActivity(this.cluster, node, ofNode)),
    );
    const all = new Map(found.flatMap((activities) => [...activities]));
    return new Map(
      pods.flatMap((pod) => {
        const activity = all.get(pod.metadata!.name!);
        return activity ? [[idsOf(pod).sandboxId, activity] as const] : [];
      }),
    );
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>> {
    const pod = this.latestOf(sandboxId);
    if (!pod) return;
    try {
      yield* followLog(this.cluster, pod.metadata!.name!, query, signal);
    } catch (error) {
      if (!signal.aborted && statusOf(error) !== NOT_FOUND) throw error;
    }
  }

  /** The cluster keeps the disks of Pods within their limits. */
  async diskUse(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** The nodes remove images by themselves. */
  async makeRoom(): Promise<void> {}

  async openGuest(sandboxId: string): ReturnType<Runtime['openGuest']> {
    const pod = this.latestOf(sandboxId);
    if (!pod) throw new Error(`the cluster has no Pod of the sandbox ${sandboxId}`);
    return this.guests.open(pod.metadata!.name!);
  }

  async *watch(signal: AbortSignal): ReturnType<Runtime['watch']> {
    const changes = new EventEmitter();
    const tell = (sandboxId: string | undefined) => changes.emit('change', sandboxId);
    const unsubscribe = [this.pods.subscribe(tell), this.nodes.subscribe(() => tell(undefined))];
    try {
      for await (const [sandboxId] of on(changes, 'change', { signal })) {
        yield sandboxId === undefined ? undefined : [sandboxId as string];
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      for (const end of unsubscribe) end();
    }
  }

  async close(): Promise<void> {
    this.guests.close();
    this.network.close();
    await this.pods.close();
    await this.nodes.close();
    await this.volumes?.close();
  }

  /** Removes the Secrets and policies that no Pod needs any more. */
  private async sweep(): Promise<void> {
    this.sweptAt = performance.now();
    await this.secrets.sweep((name) => {
      const pod = this.pods.get(name);
      return pod !== undefined && isStarting(stateOf(pod));
    });
    await this.network.policies?.sweep((name) => this.pods.get(name) !== undefined);
  }

  private async create(run: Run, pullSecret: string | undefined): Promise<void> {
    const { core, namespace } = this.cluster;
    const { runtimeClass, restrictedRuntimeClass, defaultDiskMib = 0, nodeImages = [] } = this.options;
    const { cpuOvercommit = 1 } = this.options;
    const body = podOf(run, {
      ...{ instanceId: this.instanceId, architecture: this.programs.architecture },
      ...{ programs: this.programs.volume, pullSecret, defaultDiskMib, nodeImages },
      ...{
        runtimeClass,
        restrictedRuntimeClass,
        access: this.volumes?.access ?? 'ReadWriteOnce',
        cpuOvercommit,
      },
    });
    await core.createNamespacedPod({ namespace, body }).catch(ignoreStatus(CONFLICT));
  }

  /** Throws StartRefusedError for a Pod that will not start by itself, after its end. */
  private async continueStart(run: Run, pod: V1Pod): Promise<void> {
    const state = await this.stateOf(pod);
    if (state.kind === 'unpopulated') return this.populate(run, pod);
    if (state.kind !== 'failing' && state.kind !== 'dead') return;
    const name = pod.metadata!.name!;
    if (state.kind === 'failing') {
      await this.end(pod, KILL_SECS);
      const ended = this.pods.get(name);
      // It started after all.
      if (ended && (await this.stateOf(ended)).kind === 'ended') return;
    }
    await this.remove(name);
    if (state.message === null) throw new Error('the Pod was deleted before it started');
    throw new StartRefusedError(state.message);
  }

  private async populate({ spec }: Run, pod: V1Pod): Promise<void> {
    const name = pod.metadata!.name!;
    const { guest, release } = await this.guests.open(name);
    try {
      await populatePod(guest, spec);
    } catch (error) {
      if (!(error instanceof StartRefusedError)) throw error;
      await this.end(pod, KILL_SECS);
      await this.remove(name);
      throw error;
    } finally {
      release();
    }
    const { core, namespace, library } = this.cluster;
    await core.patchNamespacedPod(
      { name, namespace, body: { metadata: { annotations: { [FILES_ANNOTATION]: FILES_IN_PLACE } } } },
      library.setHeaderOptions('Content-Type', library.PatchStrategy.MergePatch),
    );
    const isAwaited = () => this.pods.get(name)?.metadata?.annotations?.[FILES_ANNOTATION] === FILES_AWAITED;
    await this.pods.until(name, () => !isAwaited(), SEEN_LIMIT_MS);
  }

  /** Deletes a Pod, and waits until nothing of it runs. */
  private async end(pod: V1Pod, graceSecs: number): Promise<void> {
    const name = pod.metadata!.name!;
    if (hasEnded(await this.stateOf(pod))) return;
    const { core, namespace } = this.cluster;
    await core
      .deleteNamespacedPod({ name, namespace, gracePeriodSeconds: graceSecs })
      .catch(ignoreStatus(NOT_FOUND, CONFLICT));
    const deadline = performance.now() + STOP_LIMIT_MS + graceSecs * 1_000;
    while (performance.now() < deadline) {
      const now = this.pods.get(name);
      if (!now || hasEnded(await this.stateOf(now))) return;
      const version = now.metadata?.resourceVersion;
      await this.pods.until(name, (seen) => seen?.metadata?.resourceVersion !== version, LOOK_EVERY_MS);
    }
    throw new Error(`the Pod ${name} has not ended in time`);
  }

  /** Removes the Pod of an earlier run. */
  private async removeEnded(pod: V1Pod): Promise<void> {
    const name = pod.metadata!.name!;
    if (!hasEnded(await this.stateOf(pod)))
      throw new Error(`the Pod ${name} of an earlier run has not ended`);
    await this.remove(name);
  }

  /** Removes the record of a Pod that has ended. */
  private async remove(name: string): Promise<void> {
    const { core, namespace } = this.cluster;
    await this.dropFinalizer(name);
    await core.deleteNamespacedPod({ name, namespace, gracePeriodSeconds: 0 }).catch(ignoreStatus(NOT_FOUND));
    const isGone = await this.pods.until(name, (seen) => seen === undefined, REMOVE_LIMIT_MS);
    if (!isGone) throw new Error(`the Pod ${name} was not removed in time`);
  }

  private async dropFinalizer(name: string): Promise<void> {
    const { core, namespace, library } = this.cluster;
    const pod = this.pods.get(name);
    const index = pod?.metadata?.finalizers?.indexOf(FINALIZER) ?? -1;
    if (index === -1) return;
    const path = `/metadata/finalizers/${index}`;
    await core
      .patchNamespacedPod(
        {
          ...{ name, namespace },
          body: [
            { op: 'test', path, value: FINALIZER },
            { op: 'remove', path },
          ],
        },
        library.setHeaderOptions('Content-Type', library.PatchStrategy.JsonPatch),
      )
      .catch(ignoreStatus(NOT_FOUND));
  }

  /** A Pod that has not changed is read once, unless its node is lost. */
  private async holdingOf(pod: V1Pod): Promise<Holding> {
    const loss = await this.nodes.lossOf(pod.spec?.nodeName);
    const known = loss === undefined ? this.holdings.get(pod) : undefined;
    const holding = known ?? holdingOf(pod, stateOf(pod, loss));
    if (loss === undefined) this.holdings.set(pod, holding);
    return holding;
  }

  private async stateOf(pod: V1Pod): Promise<PodState> {
    return stateOf(pod, await this.nodes.lossOf(pod.spec?.nodeName));
  }

  private podsOf(sandboxId: string): V1Pod[] {
    this.pods.assertReached();
    return this.pods.of(sandboxId);
  }

  private latestOf(sandboxId: string): V1Pod | undefined {
    return this.podsOf(sandboxId).toSorted((a, b) => (idsOf(a).runId < idsOf(b).runId ? 1 : -1))[0];
  }
}

/** A lost node changes no Pod. */
const LOOK_EVERY_MS = 2_000;

function idsOf({ metadata }: V1Pod): { orgId: string; sandboxId: string; runId: string } {
  const { labels = {} } = metadata ?? {};
  return {
    orgId: labels[ORG_LABEL] ?? '',
    sandboxId: labels[SANDBOX_LABEL] ?? '',
    runId: labels[RUN_LABEL] ?? '',
  };
}

/** The directory of scripts, where the request has no PATH. */
function addedPathOf(pod: V1Pod | undefined): string | undefined {
  const [container] = pod?.spec?.containers ?? [];
  const hasScripts = container?.volumeMounts?.some(({ mountPath }) => mountPath === SCRIPTS_DIRECTORY);
  const hasPath = container?.env?.some(({ name }) => name === 'PATH');
  return hasScripts && !hasPath ? SCRIPTS_DIRECTORY : undefined;
}

function hasEnded({ kind }: PodState): boolean {
  return kind === 'ended' || kind === 'dead';
}

function isStarting({ kind }: PodState): boolean {
  return kind === 'pending' || kind === 'failing';
}

function holdingOf(pod: V1Pod, state: PodState): Holding {
  const ids = idsOf(pod);
  const none = { startedAt: null, finishedAt: null, exit: null };
  const keepsRecord = hasEnded(state) && (pod.metadata?.finalizers ?? []).includes(FINALIZER);
  switch (state.kind) {
    case 'pending':
      return { ...ids, ...none, state: 'starting', noRoom: state.noRoom };
    case 'failing':
    case 'unpopulated':
      return { ...ids, ...none, state: 'prepared' };
    case 'dead':
      return { ...ids, ...none, state: 'prepared', keepsRecord };
    case 'running':
      return { ...ids, ...none, state: 'running', startedAt: state.startedAt };
    case 'ended': {
      const { startedAt, finishedAt, exit, failure } = state;
      return { ...ids, state: 'exited', startedAt, finishedAt, exit, failure, keepsRecord };
    }
  }
}
