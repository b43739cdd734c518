import type { DiskReserve } from '../disk/disk-reserve.js';
import type { Options, ValuesOf } from '../options/option.js';
import type { Authority, Denial, Flow } from '../gateway/protocol.js';
import type { ImageAccess } from '../registry/image-access.js';
import type { RegistryReach } from '../registry/registry-session.js';
import type { RunSecrets, RunSpec } from '../spec/run-spec.js';
import type { VolumeStore } from '../volumes/storage/store.js';
import type { Finding } from './finding.js';
import type { HostSystem } from './host-system.js';
import type { Capacity, Runtime } from './runtime.js';

/** The parts of the service that an engine works with. */
export interface Surroundings {
  instanceId: string;
  dataDir: string;
  volumes: VolumeStore;
  /** In place of the capacity of the machine or the cluster. */
  capacity?: Partial<Capacity>;
  /** For sandboxes without a disk size, where the engine has quotas. 0: none. */
  defaultDiskMib?: number | undefined;
  /** Mbit/s of the network of each sandbox in each direction. 0: no limit. */
  bandwidthMbits?: number | undefined;
  /** A sandbox with `vcpus` 0 gets so much. */
  sharedCpuMillis?: number | undefined;
  /** Default: no image is pulled, and no registry asked. */
  pulls?: PullOptions | undefined;
  /** Default: no sandbox has a gateway, and admission refuses what needs it. */
  gateway?: GatewayServices | undefined;
  /** The caller only lists: the engine starts no sandbox and no probe. Default: false. */
  observes?: boolean;
}

/** The parts of the service that the gateway of an engine works with. */
export interface GatewayServices {
  /** The authority that signs certificates for interception. */
  authority(): Promise<Authority>;
  /** The secrets of a sandbox that runs, for a gateway that starts again. */
  secrets(orgId: string, sandboxId: string): Promise<RunSecrets>;
  /** The specification of a sandbox that runs, for a service that starts again. Undefined: there is no such sandbox. */
  specOf(orgId: string, sandboxId: string): Promise<RunSpec | undefined>;
  /** These return at once. */
  denied(denial: Denial): void;
  flows(flows: readonly ObservedFlow[]): void;
  /** The gateway has ended, and is started again. */
  ended?(reason: string): void;
}

/** `rule`: null when the engine does not know it. */
export type ObservedFlow = Omit<Flow, 'rule'> & { rule: Flow['rule'] | null };

export interface PullOptions {
  reach: RegistryReach;
  access: ImageAccess;
  maxMib: number;
  /** Default: a quarter of the disk of the engine, if it is on this machine. */
  maxMibOfOrg?: number | undefined;
  disk: DiskReserve;
}

/** The findings of `sandkeep doctor` about an engine and what it needs of the machine. */
export interface Examination {
  findings: Finding[];
  /** The directory of the disks of sandboxes, where it is on this machine. */
  diskPath?: string | undefined;
}

export interface ExaminationContext {
  system: HostSystem;
  dataDir: string;
  volumesDir: string;
  /** The database is below the data directory. */
  hasOwnDatabase: boolean;
  /** Undefined: no database runs. */
  instanceId: string | undefined;
  /** No other engine can take its place. */
  isRequired: boolean;
}

export interface InstallationPlace {
  instanceId: string;
  dataDir: string;
  /** Whether the engine with that id is of the installation. */
  isOwn(this: void, engineId: string): boolean;
}

/** The objects of an installation in an engine, for `sandkeep uninstall`. */
export interface Remains {
  /** For people: a line for each object. */
  lines: string[];
  inUse: NamedObject[];
  /** Removes what is removable, except shared objects that another installation uses by then. */
  remove(): Promise<Removal>;
}

interface NamedObject {
  id: string;
  name: string;
}

/** Another installation may make a removed shared object again at any moment. */
export interface Removal {
  /** For programs, by kind. */
  removed: Readonly<Record<string, readonly object[]>>;
  /** The shared objects that another installation has begun to use. */
  inUse: NamedObject[];
  /** The names of objects of this installation alone that the engine still has. */
  left: string[];
}

/** The least rights of the systemd unit of the service. */
interface UnitRights {
  /** Lines of the section [Service]. */
  lines: string;
  /** A unit that starts before it. */
  after: string;
}

/**
 * An engine, as the service knows it before it connects. Loading the definition must be cheap: every command does it.
 */
export interface EngineDefinition<O extends Options = Options, A extends string = string> {
  /** The value of `--runtime`, and the word in the store. */
  readonly name: string;
  /** Its maker's name for it, in sentences. */
  readonly label: string;
  /** The flags, variables and keys of files that are its own. */
  readonly options: O;
  /** The options that say where it is: those of commands that connect without serving. */
  readonly address: readonly A[];
  /** Further options of `sandkeep doctor`. Default: none. */
  readonly examined?: readonly A[];
  /** The options of `findRemains`. Default: none. */
  readonly leaving?: readonly A[];
  /**
   * Its part in `--runtime auto`. `preferred`: where it answers. `fallback`: where the preferred one does not. Default:
   * only by name, or as the engine of the previous start.
   */
  readonly automatic?: 'preferred' | 'fallback';
  /** It is a part of this process, so it always answers. Default: it may be away, and is connected to again. */
  readonly isInProcess?: boolean;
  /** Volumes are directories of this machine, whether or not it answers. */
  readonly hasVolumeDirectories: boolean;
  /** All of its own record is in this part of the data directory, so that backups have it. */
  readonly directory?: string;
  /** Default: the unit has a user of its own and no capability. */
  readonly unitRights?: UnitRights;
  /** The end of an error that says that it does not answer: a colon and the steps. */
  readonly remedy: string;

  connect(options: ValuesOf<O>, surroundings: Surroundings): Promise<Runtime>;
  /** Why it cannot be connected to. */
  explain(error: unknown, options: ValuesOf<O>): string;
  /** Changes no sandbox. Default: there is nothing to examine. */
  examine?(options: ValuesOf<O>, context: ExaminationContext): Promise<Examination>;
  /** Default: `sandkeep uninstall` has nothing to remove. */
  findRemains?(options: ValuesOf<O>, installation: InstallationPlace): Promise<Remains>;
}

/** Lets the compiler take the types of the options from their declarations. */
export function defineEngine<const O extends Options, const A extends keyof O & string>(
  definition: EngineDefinition<O, A>,
): EngineDefinition<O, A> {
  return definition;
}
