import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { ExplainedError } from '../lib/explained-error.js';
import type { VolumeStore } from '../volumes/storage/store.js';
import { explainConnectionError } from './docker/connection-error.js';
import type { PullOptions } from './docker/images/images.js';
import type { GuardedGroup } from '../network-policy/guarded-groups.js';
import type { DockerRuntime } from './docker/runtime.js';
import { explainConnection } from './kubernetes/explain-connection.js';
import type { NetworkChoice } from './kubernetes/network/choices.js';
import type { NamespaceChoice } from './kubernetes/namespace-choices.js';
import type { AccessChoice, SizeChoice } from './kubernetes/volume-choices.js';
import { machineCapacity } from '../engine/machine-capacity.js';
import type { Plan } from './plan.js';
import { ReconnectingRuntime } from '../engine/reconnecting.js';
import type { Capacity, Runtime } from '../engine/runtime.js';
import { SimulatedRuntime, type SimulatedOptions } from './simulated/runtime.js';

export interface RuntimeOptions {
  dockerSocket: string;
  dockerNetwork?: string | undefined;
  dockerRuntime?: string | undefined;
  dockerResolvers?: readonly string[] | undefined;
  dockerAllow?: readonly GuardedGroup[] | undefined;
  kubeconfig?: string | undefined;
  kubernetesContext?: string | undefined;
  kubernetesNamespace?: string | undefined;
  kubernetesNamespaces?: NamespaceChoice;
  kubernetesRuntimeClass?: string | undefined;
  kubernetesRestrictedRuntimeClass?: string | undefined;
  kubernetesNetwork?: NetworkChoice;
  kubernetesClusterCidrs?: readonly string[];
  kubernetesProbeImage?: string;
  kubernetesNodeImages?: readonly string[];
  kubernetesCpuOvercommit?: number;
  kubernetesStorageClass?: string | undefined;
  kubernetesVolumeMib?: number;
  kubernetesVolumeAccess?: AccessChoice;
  kubernetesVolumeSizes?: SizeChoice;
  dataDir: string;
  volumes: VolumeStore;
  instanceId: string;
  defaultDiskMib?: number | undefined;
  sandboxBandwidthMbits?: number | undefined;
  sandboxProcesses?: number | undefined;
  sharedCpuMillis?: number | undefined;
  sandboxDiskWritesMib?: number | undefined;
  capacity?: Partial<Capacity>;
  /** Default: the docker runtime pulls no image, and the kubernetes runtime reads none. */
  pulls?: PullOptions;
  simulated?: SimulatedOptions;
}

/**
 * `fallback`: why the simulated runtime replaces Docker. Throws ExplainedError when a required Docker is not usable.
 */
export async function openRuntime(
  plan: Plan,
  options: RuntimeOptions,
  log: Logger,
): Promise<{ runtime: Runtime; fallback?: string | undefined }> {
  if (plan.use === 'simulated') return { runtime: openSimulated(options), fallback: plan.because };
  if (plan.use === 'kubernetes') return { runtime: await openServedKubernetes(plan, options, log) };
  const explain = (error: unknown) =>
    error instanceof ExplainedError
      ? error.message
      : explainConnectionError(error, options.dockerSocket).reason;
  const reconnecting = (first: Runtime | { reason: string }) =>
    new ReconnectingRuntime('docker', first, () => openDocker(options), explain, log);
  try {
    return { runtime: reconnecting(await openDocker(options)) };
  } catch (cause) {
    const reason = explain(cause);
    if (plan.missing === 'wait') return { runtime: reconnecting({ reason }) };
    if (cause instanceof ExplainedError) throw cause;
    if (plan.missing === 'simulate') return { runtime: openSimulated(options), fallback: reason };
    throw new ExplainedError(
      `${reason}: start it, name its socket with --docker-socket, or use --runtime simulated`,
      { cause },
    );
  }
}

async function openServedKubernetes(
  { missing }: Extract<Plan, { use: 'kubernetes' }>,
  options: RuntimeOptions,
  log: Logger,
): Promise<Runtime> {
  const explain = (error: unknown) =>
    error instanceof ExplainedError ? error.message : explainConnection(error);
  const reconnecting = (first: Runtime | { reason: string }) =>
    new ReconnectingRuntime('kubernetes', first, () => openKubernetes(options), explain, log);
  try {
    return reconnecting(await openKubernetes(options));
  } catch (cause) {
    const reason = explain(cause);
    if (missing === 'wait') return reconnecting({ reason });
    if (cause instanceof ExplainedError) throw cause;
    throw new ExplainedError(`${reason}: name another with --kubeconfig and --kubernetes-context`, { cause });
  }
}

async function openKubernetes({
  instanceId,
  kubernetesNetwork = 'probe',
  capacity = {},
  ...options
}: RuntimeOptions): Promise<Runtime> {
  const { KubernetesRuntime } = await import('./kubernetes/runtime.js');
  return KubernetesRuntime.connect(instanceId, {
    kubeconfig: options.kubeconfig,
    context: options.kubernetesContext,
    namespace: options.kubernetesNamespace,
    namespaces: options.kubernetesNamespaces,
    runtimeClass: options.kubernetesRuntimeClass,
    restrictedRuntimeClass: options.kubernetesRestrictedRuntimeClass,
    network: kubernetesNetwork,
    clusterCidrs: options.kubernetesClusterCidrs ?? [],
    probeImage: options.kubernetesProbeImage,
    nodeImages: options.kubernetesNodeImages ?? [],
    cpuOvercommit: options.kubernetesCpuOvercommit,
    sharedCpuMillis: options.sharedCpuMillis,
    storage: {
      storageClass: options.kubernetesStorageClass,
      defaultMib: options.kubernetesVolumeMib,
      access: options.kubernetesVolumeAccess,
      sizes: options.kubernetesVolumeSizes,
    },
    defaultDiskMib: options.defaultDiskMib,
    bandwidthMbits: options.sandboxBandwidthMbits,
    registry: options.pulls?.reach,
    capacity,
  });
}

export async function openDocker({
  instanceId,
  dockerSocket,
  dockerNetwork,
  dockerRuntime,
  dockerResolvers: resolvers,
  dockerAllow = [],
  volumes,
  defaultDiskMib,
  sandboxBandwidthMbits: bandwidthMbits,
  sandboxProcesses: processes,
  sharedCpuMillis,
  sandboxDiskWritesMib: writesMibPerSecond,
  capacity = {},
  pulls,
}: RuntimeOptions): Promise<DockerRuntime> {
  // Loading the client library takes as long as loading the worker without it.
  const docker = await import('./docker/runtime.js');
  return docker.DockerRuntime.connect(instanceId, {
    socketPath: dockerSocket,
    network: dockerNetwork,
    runtimeClass: dockerRuntime,
    allow: dockerAllow,
    volumes,
    capacity,
    defaultDiskMib,
    bandwidthMbits,
    processes,
    sharedCpuMillis,
    writesMibPerSecond,
    pulls,
    resolvers,
  });
}

function openSimulated({ dataDir, capacity = {}, sharedCpuMillis, simulated = {} }: RuntimeOptions): Runtime {
  const directory = join(dataDir, 'simulated');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  return new SimulatedRuntime(directory, {
    ...simulated,
    sharedCpuMillis,
    capacity: { ...machineCapacity(), ...capacity },
  });
}
