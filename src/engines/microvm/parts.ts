import type { GatewayServices } from '../../engine/definition.js';
import type { SlotQueue } from '../../fairness/slot-queue.js';
import type { VolumeStore } from '../../volumes/storage/store.js';
import type { BootFiles } from './boot/boot-files.js';
import type { Changes } from './changes.js';
import type { ControlGroups } from './control-groups.js';
import type { ImageUses } from './disks/image-uses.js';
import type { VmImages } from './images/vm-images.js';
import type { VmNetworks } from './network/vm-networks.js';
import type { SnapshotStore } from './snapshots/snapshot-store.js';
import type { MonitorUsers } from './users.js';
import type { FileServer } from './volumes/file-server.js';
import type { FolderUses } from './volumes/folder-uses.js';

/** The parts of the engine that a start works with. */
export interface MicrovmParts {
  /** That of the engine, in the data directory. */
  directory: string;
  /** The program of the monitor. */
  monitor: string;
  /** The version of the monitor. */
  version: string;
  isEmulated: boolean;
  /** That of /dev/kvm. Undefined: there is none, or the service needs none. */
  kvmGroup: number | undefined;
  /** The kernel of virtual machines, and their first programs. */
  boot: BootFiles;
  images: VmImages;
  snapshots: SnapshotStore;
  volumes: VolumeStore;
  /** The program that serves volumes. Undefined: this machine has none, and no volume can be mounted. */
  fileServer: FileServer | undefined;
  /** Memory of a monitor beside that of its guest, which the kernel enforces. */
  overheadMib: number;
  /** MiB a second to all disks of a virtual machine. 0: no limit. */
  diskWritesMib: number;
  sharedCpuMillis: number;
  /** For sandboxes without a disk size. */
  defaultDiskMib: number;
  users: MonitorUsers;
  imageUses: ImageUses;
  folderUses: FolderUses;
  /** Undefined: this process may not write control groups. */
  groups: ControlGroups | undefined;
  changes: Changes;
  networks: VmNetworks;
  /** Undefined: no sandbox has a gateway. */
  services: GatewayServices | undefined;
  /** A start takes processor time of the machine, above all where processors are emulated. */
  places: SlotQueue;
}
