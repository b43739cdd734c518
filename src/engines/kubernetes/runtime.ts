import { KUBERNETES_OPTIONS } from './options.js';
import type { V1Pod } from '@kubernetes/client-node';
import { EventEmitter, on } from 'node:events';
import { v5 as uuidv5 } from 'uuid';
import { ExplainedError } from '../../lib/explained-error.js';
import { SCRIPTS_DIRECTORY } from '../../engine/run-files.js';
import type { RegistryReach } from '../../registry/registry-session.js';
import {
  NoRoomError,
  StartRefusedError,
  type Activity,
  type Capacity,
  type Holding,
  type LogChunk,
  type LogQuery,
  type Run,
  type Runtime,
} from '../../engine/runtime.js';
import type { Capability } from '../../spec/capabilities.js';
import { noRoomWords } from '../../engine/no-room.js';
import { NO_ROOM } from './no-room.js';
import { SHARED_CPU_MILLIS } from '../../engine/shared-cpu.js';
import { mayReadSummaries, readActivity } from './activity.js';
import { Claims, type StorageOptions } from './claims.js';
import { openCluster, type Cluster, type ClusterAddress } from './client.js';
import { CONFLICT, clusterMessage, FORBIDDEN, ignoreStatus, INVALID, NOT_FOUND, statusOf } from './errors.js';
import { PodGuests } from './guests.js';
import { hasEnded, holdingOf, idsOf, isStarting } from './holdings.js';
import { ImageEntrypoints } from './image-entrypoints.js';
import { followLog } from './logs.js';
import { FILES_ANNOTATION, FILES_AWAITED, FILES_IN_PLACE, placeOf, podName, selectorOf } from './names.js';
import type { NamespaceChoice } from './namespace-choices.js';
import { recordChoice } from './namespace-record.js';
import { Namespaces } from './namespaces.js';
import type { NetworkChoice } from './network/choices.js';
import { ClusterNetwork } from './network/cluster-network.js';
import { Nodes } from './nodes.js';
import { workdirOf } from '../../guest/programs.js';
import { podOf, unescaped } from './pod.js';
import { KILL_SECS, PodEnds } from './pod-ends.js';
import { stateOf } from './pod-state.js';
import { populatePod } from './populate-pod.js';
import { PodPrograms } from './programs.js';
import { StartSecrets, type SecretNames } from './start-secrets.js';
import { WatchCache } from './watch-cache.js';

export interface KubernetesOptions extends ClusterAddress {
  /** Default: `shared`. */
  namespaces?: NamespaceChoice | undefined;
  runtimeClass?: string | undefined;
  /** For the security profile `restricted`. Default: the other one. */
  restrictedRuntimeClass?: string | undefined;
  network: NetworkChoice;
  /** Empty: every private address. */
  clusterCidrs?: readonly string[];
  /** Nothing of it is run. */
  probeImage?: string | undefined;
  nodeImages?: readonly string[];
  /** Without: commands need an entrypoint. */
  registry?: RegistryReach | undefined;
  /** How many times the vCPUs of a node its sandboxes can be limited to. Default: 1. */
  cpuOvercommit?: number | undefined;
  sharedCpuMillis?: number | undefined;
  storage?: StorageOptions;
  capacity?: Partial<Capacity>;
  /** For sandboxes without a disk size. 0: no bound. */
  defaultDiskMib?: number | undefined;
  /** Mbit/s of the network of each Pod in each direction. 0: no limit. */
  bandwidthMbits?: number | undefined;
}

/** The most that a worker can have. */
const MOST_VCPUS = 1_000_000;
/** Another try would get the same answer. */
const REFUSALS = new Set([400, FORBIDDEN, INVALID]);
const ENGINE_NAMESPACE = '8a8f0f0e-52f4-4d0e-9f3b-0a6b1c4d7e21';
const SEEN_LIMIT_MS = 10_000;
/** A sweep visits every policy. */
const SWEEP_EVERY_MS = 1_000;
/** The service finds the processor of nodes that it may not read by its own. */
const OWN_ARCHITECTURE: Record<string, string> = { x64: 'amd64', arm64: 'arm64' };

interface KubernetesRuntimeParts {
  cluster: Cluster;
  instanceId: string;
  options: KubernetesOptions;
  namespaces: Namespaces;
  engineId: string;
  pods: WatchCache<V1Pod>;
  nodes: Nodes;
  programs: PodPrograms;
  network: ClusterNetwork;
  version: string;
  readsActivity: boolean;
  volumes: Claims | undefined;
}

/** Runs sandboxes as Pods of a Kubernetes cluster, one for each run. The scheduler of the cluster places them. */
export class KubernetesRuntime implements Runtime {
  readonly engineId: string;
  readonly volumes: Claims | undefined;
  readonly name = 'kubernetes';
  readonly listsSome = true;
  readonly pullsEachStart = true;
  readonly description: string;
  readonly machine: string;
  private readonly guests: PodGuests;
  private readonly secrets: StartSecrets;
  private readonly ends: PodEnds;
  private readonly entrypoints: ImageEntrypoints;
  private readonly holdings = new WeakMap<V1Pod, Holding>();
  private sweptAt = -Infinity;

  private constructor(private readonly parts: KubernetesRuntimeParts) {
    const { cluster, instanceId, options, namespaces, pods, nodes, programs, network, version } = parts;
    this.engineId = parts.engineId;
    this.volumes = parts.volumes;
    const { namespace, server } = cluster;
    this.machine = `${new URL(server).host}/${namespace}`;
    this.guests = new PodGuests(cluster, (name) => {
      const pod = this.parts.pods.get(name);
      if (!pod) throw new Error(`the Pod ${name} is gone`);
      return { place: placeOf(pod), addedPath: addedPathOf(pod), workdir: workdirIn(pod) };
    });
    this.secrets = new StartSecrets(cluster, instanceId, namespaces);
    this.ends = new PodEnds(cluster, pods, nodes);
    this.entrypoints = new ImageEntrypoints(
      options.registry,
      options.nodeImages ?? [],
      programs.architecture,
    );
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    const nodesText =
      nodes.count === undefined ? 'nodes that the service may not read' : `${nodes.count} nodes`;
    this.description = `kubernetes: Pods${kind} ${namespaces.description} of Kubernetes ${version}, ${nodesText}, network: ${network.description}`;
  }

  static async connect(instanceId: string, options: KubernetesOptions): Promise<KubernetesRuntime> {
    const cluster = await openCluster(options);
    const { core, namespace, library, config } = cluster;
    const { namespaces: choice = 'shared' } = options;
    const namespaces = await Namespaces.open(cluster, instanceId, choice);
    const found = await core.readNamespace({ name: namespace }).catch(ignoreStatus(NOT_FOUND));
    if (!found) {
      throw new ExplainedError(
        `the cluster has no namespace "${namespace}": create it, or name another with --kubernetes-namespace`,
      );
    }
    await recordChoice(cluster, instanceId, choice);
    const nodes = await Nodes.open(cluster);
    const architecture = nodes.architecture ?? OWN_ARCHITECTURE[process.arch] ?? process.arch;
    const programs = new PodPrograms(cluster, architecture);
    await programs.ensure(namespace);
    const networkOptions = {
      instanceId,
      architecture,
      programs: programs.volume,
      choice: options.network,
      clusterCidrs: options.clusterCidrs ?? [],
      image: options.probeImage ?? KUBERNETES_OPTIONS.kubernetesProbeImage.default,
      runtimeClass: options.runtimeClass,
    };
    const network = await ClusterNetwork.open(cluster, networkOptions, namespaces);
    const pods = new WatchCache<V1Pod>(cluster, {
      path: namespaces.pathOf('pods'),
      labelSelector: selectorOf(instanceId),
      groupOf: (pod) => idsOf(pod).sandboxId,
      accepts: (pod) => namespaces.owns(pod),
      list: (page) =>
        namespaces.areApart
          ? core.listPodForAllNamespaces(page)
          : core.listNamespacedPod({ namespace, ...page }),
    });
    await pods.relist();
    const { gitVersion } = await new library.VersionApi(
      library.createConfiguration({
        baseServer: new library.ServerConfiguration(cluster.server, {}),
        authMethods: { default: config },
      }),
    ).getCode();
    return new KubernetesRuntime({
      cluster,
      instanceId,
      options,
      namespaces,
      engineId: uuidv5(`${instanceId} ${found.metadata!.uid}`, ENGINE_NAMESPACE),
      pods,
      nodes,
      programs,
      network,
      version: gitVersion,
      readsActivity: await mayReadSummaries(cluster),
      volumes: await Claims.open(cluster, instanceId, options.storage ?? {}, namespaces),
    });
  }

  get capabilities(): ReadonlySet<Capability> {
    return new Set<Capability>([
      ...(['disk_size', 'tmpfs', 'scripts', 'patches'] as const),
      ...(['registry_credentials', 'secret_env'] as const),
      ...(this.parts.readsActivity ? (['idle_timeout'] as const) : []),
      ...(this.parts.options.registry ? (['image_entrypoint'] as const) : []),
      ...(this.volumes?.capabilities ?? []),
      ...this.parts.network.capabilities,
    ]);
  }

  get capacity(): Capacity {
    const { vcpus, ...nodes } = this.parts.nodes.capacity;
    const all = Math.min(vcpus * (this.parts.options.cpuOvercommit ?? 1), MOST_VCPUS);
    return { ...nodes, vcpus: all, ...this.parts.options.capacity };
  }

  /** A limit of the operator holds for all nodes together, which the scheduler does not know. */
  get placesRuns(): boolean {
    return Object.keys(this.parts.options.capacity ?? {}).length === 0;
  }

  get bounds(): Runtime['bounds'] {
    const { sharedCpuMillis = SHARED_CPU_MILLIS.default } = this.parts.options;
    return { ...this.parts.nodes.bounds, sharedCpuMillis };
  }

  async takeOver(): Promise<void> {
    this.parts.namespaces.forget();
    await this.parts.pods.relist();
    await this.volumes?.relist();
    await this.secrets.takeOver();
    await this.parts.network.policies?.takeOver();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    const name = podName(run.runId);
    const own = this.parts.pods.get(name);
    if (own) return this.continueStart(run, own);
    for (const older of this.podsOf(run.sandboxId)) await this.ends.removeEnded(older);
    const spec = await this.entrypoints.complete(run, signal);
    const { policies } = this.parts.network;
    const namespace = this.parts.namespaces.of(run.orgId);
    await this.parts.namespaces.ensure(
      run,
      policies ? [this.parts.programs, policies] : [this.parts.programs],
    );
    await this.volumes?.ensure(run);
    if (signal.aborted) return;
    // The policy and the Secret stay until the list has the Pod.
    const startPod = async () =>
      this.secrets.around(run, async (secretNames) => {
        await this.parts.namespaces.whenSettled(namespace, async () =>
          this.create({ ...run, spec }, secretNames),
        );
        await this.parts.pods.until(name, (pod) => pod !== undefined, SEEN_LIMIT_MS, signal);
      });
    try {
      await (policies ? policies.around(run, startPod) : startPod());
    } catch (error) {
      const noRoom = noRoomWords(NO_ROOM, clusterMessage(error));
      // Somebody may have deleted it.
      this.parts.namespaces.forget(namespace);
      if (noRoom !== undefined) throw new NoRoomError(noRoom, { cause: error });
      if (!REFUSALS.has(statusOf(error) ?? 0)) throw error;
      throw new StartRefusedError(`the cluster refused the Pod: ${clusterMessage(error)}`, { cause: error });
    }
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    for (const pod of this.podsOf(sandboxId)) {
      await this.ends.end(pod, graceMs > 0 ? Math.ceil(graceMs / 1_000) : KILL_SECS);
    }
  }

  async destroy(sandboxId: string): Promise<void> {
    for (const pod of this.podsOf(sandboxId)) {
      if (!hasEnded(await this.ends.stateOf(pod))) await this.ends.end(pod, KILL_SECS);
      await this.ends.remove(pod);
    }
  }

  async dropRecord({ runId }: Holding): Promise<void> {
    await this.ends.dropFinalizer(podName(runId));
  }

  async list(sandboxIds?: ReadonlySet<string>): Promise<Holding[]> {
    this.parts.pods.assertReached();
    const pods = sandboxIds
      ? [...sandboxIds].flatMap((id) => this.parts.pods.of(id))
      : this.parts.pods.known();
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
      [...byNode].map(async ([node, ofNode]) => readActivity(this.parts.cluster, node, ofNode)),
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
      yield* followLog(this.parts.cluster, placeOf(pod), query, signal);
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
    const unsubscribe = [this.parts.pods.subscribe(tell), this.parts.nodes.subscribe(() => tell(undefined))];
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
    this.parts.network.close();
    await this.parts.pods.close();
    await this.parts.nodes.close();
    await this.volumes?.close();
  }

  /** Removes the Secrets and policies that no Pod needs any more. */
  private async sweep(): Promise<void> {
    this.sweptAt = performance.now();
    await this.secrets.sweep((name) => {
      const pod = this.parts.pods.get(name);
      return pod !== undefined && isStarting(stateOf(pod));
    });
    await this.parts.network.policies?.sweep((name) => this.parts.pods.get(name) !== undefined);
  }

  private async create(run: Run, secretNames: SecretNames): Promise<void> {
    const { core } = this.parts.cluster;
    const namespace = this.parts.namespaces.of(run.orgId);
    const { runtimeClass, restrictedRuntimeClass, defaultDiskMib = 0, nodeImages = [] } = this.parts.options;
    const { cpuOvercommit = 1, bandwidthMbits = 0 } = this.parts.options;
    const body = podOf(run, {
      instanceId: this.parts.instanceId,
      architecture: this.parts.programs.architecture,
      programs: this.parts.programs.volume,
      secretNames,
      defaultDiskMib,
      nodeImages,
      runtimeClass,
      restrictedRuntimeClass,
      access: this.volumes?.access ?? 'ReadWriteOnce',
      cpuOvercommit,
      sharedCpuMillis: this.bounds.sharedCpuMillis,
      bandwidthMbits,
    });
    await core.createNamespacedPod({ namespace, body }).catch(ignoreStatus(CONFLICT));
  }

  /** Throws StartRefusedError for a Pod that will not start by itself, after its end. */
  private async continueStart(run: Run, pod: V1Pod): Promise<void> {
    const state = await this.ends.stateOf(pod);
    if (state.kind === 'unpopulated') return this.populate(run, pod);
    if (state.kind !== 'failing' && state.kind !== 'dead') return;
    const name = pod.metadata!.name!;
    if (state.kind === 'failing') {
      await this.ends.end(pod, KILL_SECS);
      const ended = this.parts.pods.get(name);
      // It started after all.
      if (ended && (await this.ends.stateOf(ended)).kind === 'ended') return;
    }
    await this.ends.remove(pod);
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
      await this.ends.end(pod, KILL_SECS);
      await this.ends.remove(pod);
      throw error;
    } finally {
      release();
    }
    const { core, library } = this.parts.cluster;
    await core.patchNamespacedPod(
      { ...placeOf(pod), body: { metadata: { annotations: { [FILES_ANNOTATION]: FILES_IN_PLACE } } } },
      library.setHeaderOptions('Content-Type', library.PatchStrategy.MergePatch),
    );
    const isAwaited = () =>
      this.parts.pods.get(name)?.metadata?.annotations?.[FILES_ANNOTATION] === FILES_AWAITED;
    await this.parts.pods.until(name, () => !isAwaited(), SEEN_LIMIT_MS);
  }

  /** A Pod that has not changed is read once, unless its node is lost. */
  private async holdingOf(pod: V1Pod): Promise<Holding> {
    const loss = await this.parts.nodes.lossOf(pod.spec?.nodeName);
    const known = loss === undefined ? this.holdings.get(pod) : undefined;
    const holding = known ?? holdingOf(pod, stateOf(pod, loss));
    if (loss === undefined) this.holdings.set(pod, holding);
    return holding;
  }

  private podsOf(sandboxId: string): V1Pod[] {
    this.parts.pods.assertReached();
    return this.parts.pods.of(sandboxId);
  }

  private latestOf(sandboxId: string): V1Pod | undefined {
    return this.podsOf(sandboxId).toSorted((a, b) => (idsOf(a).runId < idsOf(b).runId ? 1 : -1))[0];
  }
}

function workdirIn(pod: V1Pod): string | undefined {
  return workdirOf((pod.spec?.containers[0]?.args ?? []).map(unescaped));
}

/** The directory of scripts, where the request has no PATH. */
function addedPathOf(pod: V1Pod | undefined): string | undefined {
  const [container] = pod?.spec?.containers ?? [];
  const hasScripts = container?.volumeMounts?.some(({ mountPath }) => mountPath === SCRIPTS_DIRECTORY);
  const hasPath = container?.env?.some(({ name }) => name === 'PATH');
  return hasScripts && !hasPath ? SCRIPTS_DIRECTORY : undefined;
}
