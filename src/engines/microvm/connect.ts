import { mkdirSync } from 'node:fs';
import { availableParallelism, hostname, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Surroundings } from '../../engine/definition.js';
import { machineCapacity } from '../../engine/machine-capacity.js';
import { SHARED_CPU_MILLIS } from '../../engine/shared-cpu.js';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { ValuesOf } from '../../options/option.js';
import { explainNoDisks } from '../../volumes/storage/disks/probe-disks.js';
import { Changes } from './changes.js';
import { MAX_DISK_IMAGES } from './disks/disk-image.js';
import { LARGEST_DISK_MIB } from './disks/create-disk.js';
import { MAX_FOLDERS } from './volumes/open-folders.js';
import { ControlGroups } from './control-groups.js';
import { ImageUses } from './disks/image-uses.js';
import { ImageStore } from './images/image-store.js';
import { IMAGES_DIRECTORY } from './images/images-directory.js';
import { ownArchitecture } from './images/own-architecture.js';
import { VmImages } from './images/vm-images.js';
import { readIdentity } from './identity.js';
import { explainNoKvm, WITHOUT_KVM } from './kvm-probe.js';
import { requireKvm, requireMonitor, versionOf } from './machine.js';
import { parsePool } from './network/address-pool.js';
import { VmNetworks } from './network/vm-networks.js';
import type { MICROVM_OPTIONS } from './options.js';
import { engineIdIn } from './engine-id.js';
import { DIRECTORY, placesOf, sandboxesDirectory, snapshotsDirectory } from './places.js';
import { engineBootFiles } from './prepare-boot.js';
import { MicrovmRuntime } from './runtime.js';
import { SnapshotStore } from './snapshots/snapshot-store.js';
import { MonitorUsers } from './users.js';
import { explainNoSharing, findFileServer } from './volumes/file-server.js';
import { FolderUses } from './volumes/folder-uses.js';

/** Kernels with what the initramfs holds do not start with less. */
const SMALLEST_MEMORY_MIB = 128;
const DEFAULT_DISK_MIB = 10_240;
const STARTS_PER_CPU = 2;
const FEWEST_STARTS = 4;
const LONGEST_WAIT_MS = 3_600_000;
const MIB = 1024 * 1024;

const EMULATION =
  'The processors of sandboxes are EMULATED (--microvm-emulation): this is slow, isolates less than KVM, and is only for tests';

/** `fs.nr_open` of a kernel whose sandbox has not changed it. */
const OPEN_FILES = 1_048_576;

export async function connectMicrovm(
  options: ValuesOf<typeof MICROVM_OPTIONS>,
  surroundings: Surroundings,
): Promise<MicrovmRuntime> {
  const { instanceId, dataDir } = surroundings;
  if (process.platform !== 'linux') throw new ExplainedError('the microvm runtime needs Linux');
  if (process.geteuid?.() !== 0)
    throw new ExplainedError(
      'the microvm runtime needs root, which gives each monitor a user of its own: sudo sandkeep install --systemd --runtime microvm',
    );
  const isEmulated = options.microvmEmulation;
  const monitor = requireMonitor();
  const kvm = isEmulated ? undefined : requireKvm();
  const version = await versionOf(monitor);
  const noKvm = isEmulated ? undefined : await explainNoKvm({ monitor });
  const directory = join(dataDir, DIRECTORY);
  mkdirSync(sandboxesDirectory(directory), { recursive: true, mode: 0o700 });
  const snapshots = new SnapshotStore(snapshotsDirectory(directory));
  const images = new VmImages({
    store: new ImageStore(join(dataDir, IMAGES_DIRECTORY)),
    sandboxes: sandboxesDirectory(directory),
    orgOf: async (sandboxId) => (await readIdentity(placesOf(directory, sandboxId).identity))?.orgId,
    snapshotBases: async (orgId) => snapshots.basesOf(orgId),
    architecture: ownArchitecture(),
    pulls: surroundings.pulls,
  });
  const groups = ControlGroups.open(instanceId, { isEmulated });
  if (options.microvmAddresses !== undefined && !parsePool(options.microvmAddresses))
    throw new ExplainedError(
      `--microvm-addresses ${options.microvmAddresses} is no subnet: take the first address of one, such as 10.200.0.0/20`,
    );
  const networks = await VmNetworks.open({
    instanceId,
    directory,
    subnet: options.microvmAddresses,
    resolvers: options.microvmResolvers,
    openableGroups: options.microvmAllow,
    bandwidthMbits: surroundings.bandwidthMbits ?? 0,
    services: surroundings.gateway,
  });
  const found = await findFileServer();
  const noSharing = explainNoSharing(found);
  const noDisks =
    noSharing ?? (await explainNoDisks(surroundings.volumes.root, join(directory, 'volume-probe')));
  surroundings.volumes.makesDisks = noDisks === undefined;
  const sharedCpuMillis = surroundings.sharedCpuMillis ?? SHARED_CPU_MILLIS.default;
  const total = Math.max(availableParallelism() * STARTS_PER_CPU, FEWEST_STARTS);
  const how = isEmulated
    ? 'by SOFTWARE EMULATION, which is slow and isolates less than KVM: ONLY FOR TESTS'
    : 'with KVM';
  const unlimited = groups
    ? ''
    : '; NO LIMITS of CPU and memory, because this process may not write control groups';
  const lacks = [
    ...(noSharing === undefined ? [] : [`no volumes, because ${noSharing}`]),
    ...(noSharing === undefined && noDisks !== undefined ? [`no caps of volumes, because ${noDisks}`] : []),
  ].map((words) => `; ${words}`);
  const warnings = [
    ...(isEmulated ? [EMULATION] : []),
    // Sandboxes that run are adopted all the same, so the service starts.
    ...(noKvm === undefined ? [] : [`No virtual machine starts here: ${noKvm}. Instead, ${WITHOUT_KVM}`]),
  ];
  return new MicrovmRuntime({
    parts: {
      directory,
      monitor,
      version,
      isEmulated,
      kvmGroup: kvm?.group,
      boot: await engineBootFiles(directory, options.microvmKernel),
      images,
      snapshots,
      volumes: surroundings.volumes,
      fileServer: noSharing === undefined ? found : undefined,
      overheadMib: options.microvmOverheadMib,
      diskWritesMib: options.microvmDiskWritesMib,
      sharedCpuMillis,
      defaultDiskMib: surroundings.defaultDiskMib || DEFAULT_DISK_MIB,
      users: new MonitorUsers(instanceId),
      imageUses: new ImageUses(),
      folderUses: new FolderUses(),
      groups,
      changes: new Changes(directory),
      networks,
      services: surroundings.gateway,
      places: new SlotQueue({ total, each: total - 1, maxWaitMs: LONGEST_WAIT_MS }),
    },
    engineId: engineIdIn(directory),
    machine: hostname(),
    capacity: { ...machineCapacity(), ...surroundings.capacity },
    bounds: {
      vcpus: availableParallelism(),
      memoryMib: Math.floor(totalmem() / MIB),
      smallestMemoryMib: SMALLEST_MEMORY_MIB,
      openFiles: OPEN_FILES,
      mountedVolumes: MAX_FOLDERS,
      diskImages: MAX_DISK_IMAGES,
      diskMib: LARGEST_DISK_MIB,
      sharedCpuMillis,
    },
    warnings: warnings.length === 0 ? undefined : warnings,
    description: `microvm: virtual machines of QEMU ${version} ${how}, network: ${networks.description}${unlimited}${lacks.join('')}`,
  });
}
