import type Docker from 'dockerode';
import type { SlotQueue } from '../../fairness/slot-queue.js';
import type { VolumeStore } from '../../volumes/storage/store.js';
import type { Capacity, Runtime } from '../../engine/runtime.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from './container.js';
import type { ContainerdPlace } from './containerd.js';
import type { DetectedCapabilities } from './detect-capabilities.js';
import type { GuestInit } from './guest-init.js';
import type { Images } from './images/images.js';
import type { GatewayServices, PullOptions } from '../../engine/definition.js';
import type { GuardedGroup } from '../../network-policy/guarded-groups.js';
import type { SandboxNetworks } from './network/sandbox-networks.js';
import type { UnansweredCalls } from './unanswered-calls.js';

export interface DockerOptions {
  socketPath: string;
  /** A bridge network of the engine, or `none`. Default: one of the installation's own. */
  network?: string | undefined;
  resolvers?: readonly string[] | undefined;
  /** Guarded groups that policies may open. Default: none. */
  allow?: readonly GuardedGroup[];
  /** Mbit/s of the network of each sandbox in each direction, from its next start on. 0: no limit. */
  bandwidthMbits?: number | undefined;
  /** On one bridge of the installation's own. */
  sandboxesPerBridge?: number | undefined;
  preparedNetworks?: number | undefined;
  processes?: number | undefined;
  sharedCpuMillis?: number | undefined;
  writesMibPerSecond?: number | undefined;
  /** Such as `runsc`. Default: the engine's default. */
  runtimeClass?: string | undefined;
  volumes: VolumeStore;
  capacity?: Partial<Capacity>;
  /** For sandboxes without a disk size, where the engine has quotas. 0: none. */
  defaultDiskMib?: number | undefined;
  /** Default: no image is pulled. */
  pulls?: PullOptions | undefined;
  /** Default: no sandbox has a gateway or a record of its network. */
  gateway?: GatewayServices | undefined;
}

/** The parts of a connected runtime: the engine, the machine below it, and the queues before both. */
export interface DockerParts {
  docker: Docker;
  untimed: Docker;
  instanceId: string;
  options: DockerOptions;
  engineId: string;
  machine: string;
  diskPath: string;
  capacity: Capacity;
  bounds: Runtime['bounds'];
  version: string;
  init: GuestInit;
  detected: DetectedCapabilities;
  networks: SandboxNetworks;
  /** The containers run under the kernel of the machine. */
  sharesKernel: boolean;
  /** The engine makes more containers at once no faster, and each of them later. */
  places: SlotQueue;
  images: Images;
  controlGroup: string | undefined;
  containerd: ContainerdPlace | undefined;
  /** Why the engine makes no snapshots of sandboxes. Undefined: it makes them. */
  noSnapshots: string | undefined;
  calls: UnansweredCalls;
}

export async function findContainer(
  { docker, instanceId }: Pick<DockerParts, 'docker' | 'instanceId'>,
  sandboxId: string,
): Promise<Docker.ContainerInfo | undefined> {
  const found = await docker.listContainers({
    all: true,
    filters: { label: [`${INSTANCE_LABEL}=${instanceId}`, `${SANDBOX_LABEL}=${sandboxId}`] },
  });
  return found[0];
}
