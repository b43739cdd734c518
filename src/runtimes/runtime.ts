import { ApiError } from '../http/errors.js';
import type { Integer } from '../lib/exact-json.js';
import type { Instant } from '../lib/instant.js';
import type { MountRequest } from '../sandboxes/spec/mount-schema.js';
import type { NetworkPolicy } from '../sandboxes/spec/network-schema.js';
import type { CreateSandboxRequest } from '../sandboxes/spec/schema.js';

export const RUNTIME_CHOICES = ['auto', 'docker', 'simulated'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];

/**
 * The input of a runtime: the request with defaults and without secrets. The store keeps it, so every start of a
 * sandbox uses the same.
 */
export interface RunSpec {
  image: string;
  pullPolicy: 'if_missing' | 'always' | 'never';
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
  /** The command that each start launches once. Null or empty: none. */
  cmd: string[] | null;
  entrypoint: string[] | null;
  user: string | null;
  workdir: string | null;
  shell: string | null;
  scripts: Record<string, string>;
  env: { key: string; value: string }[];
  labels: Record<string, string>;
  rlimits: { resource: string; soft: Integer; hard: Integer }[];
  mounts: RunMount[];
  patches: NonNullable<CreateSandboxRequest['patches']>;
  init: CreateSandboxRequest['init'];
  securityProfile: 'default' | 'restricted';
  networkEnabled: boolean;
  /** Null, or missing in specifications of earlier releases: the public profile. */
  networkPolicy?: NetworkPolicy | null;
  /** Default: the id of the sandbox. */
  hostname?: string | null;
  /** Whether the run ends with `cmd`. Default: false. */
  endsWithCommand?: boolean;
  idleTimeoutSecs: number | null;
  maxDurationSecs: number | null;
  /** The capabilities that the worker of this sandbox must have. */
  demands: Capability[];
}

/** `volumeId`: of the named volume, or of the host volume of the organization. Callers never see it. */
export type VolumeMount = Extract<MountRequest, { type: 'bind' | 'named' }> & { volumeId: string };
export type RunMount = Exclude<MountRequest, { type: 'bind' | 'named' }> | VolumeMount;

/** Secrets in clear text. Only a runtime receives them. */
export interface RunSecrets {
  /** For the first pull of the image. Null: already pulled, or none needed. */
  registry: { username: string; password: string } | null;
  /** The values of `network.secrets`, by environment variable. */
  values: Record<string, string>;
}

/** One run to start. The runtime records the three ids with everything it keeps for the run. */
export interface Run {
  orgId: string;
  sandboxId: string;
  runId: string;
  spec: RunSpec;
  secrets: RunSecrets;
}

/**
 * Features that only some runtimes have. `sandboxes/demands.ts` refuses a request that needs a missing one, and names
 * the field.
 */
export const CAPABILITIES = [
  'disk_size',
  'scripts',
  'patches',
  'patch_remove',
  'patch_engine_files',
  'init',
  'rlimit_as',
  'rlimit_priority',
  'tmpfs',
  'named_volumes',
  'volume_caps',
  'bind_mounts',
  'mount_flags',
  'mount_quota',
  'stat_virtualization',
  'host_permissions',
  'disk_images',
  'network_policy',
  'network_domains',
  'network_host',
  'network_metadata',
  'published_ports',
  'tls_interception',
  'connection_limit',
  'secrets',
  'idle_timeout',
  'registry_credentials',
  'stored_credentials',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** The record that a runtime keeps for one sandbox: its disk and its latest run. Times are exact to the microsecond. */
export interface Holding {
  orgId: string;
  sandboxId: string;
  runId: string;
  /** `prepared`: this run has not started. `exited`: it has started and ended. */
  state: 'prepared' | 'running' | 'exited';
  startedAt: Instant | null;
  finishedAt: Instant | null;
  exit: Exit | null;
}

export interface Exit {
  /** The exit code of process 1, which takes over the code of the command when the run ends with it. */
  code: number;
  outOfMemory: boolean;
}

/** A permanent refusal: the same start would fail again. Users see the message. */
export class StartRefusedError extends Error {}

/**
 * Whether the engine answers. `connecting`: it has not answered since the service started, so even its id is unknown.
 */
export type EngineState = { state: 'up'; reason: null } | { state: 'connecting' | 'away'; reason: string };

export class EngineUnavailableError extends ApiError {
  constructor(runtime: string, reason: string | null) {
    const message = `the ${runtime} runtime cannot be used now: ${reason ?? 'its engine does not answer'}`;
    super('not_ready', message, { runtime }, { headers: { 'retry-after': '5' } });
  }
}

/** The total for all sandboxes of an engine. */
export interface Capacity {
  vcpus: number;
  memoryMib: number;
  /** Null: not counted. */
  diskMib: number | null;
}

export interface Activity {
  /** The CPU time since the start of the run, in microseconds. */
  cpuMicros: number;
}

/** `output`: from a terminal. `system`: from the runtime itself. */
export const LOG_SOURCES = ['stdout', 'stderr', 'output', 'system'] as const;
export type LogSource = (typeof LOG_SOURCES)[number];

/** Usually one line with its line break; a long line comes in several chunks. */
export interface LogChunk {
  source: LogSource;
  ts: string;
  text: string;
}

export interface LogQuery {
  sources: ReadonlySet<LogSource>;
  /** Only later chunks, in nanoseconds since 1970. Default: all. */
  after: { stdout?: bigint; stderr?: bigint };
}

export interface Runtime {
  readonly name: string;
  /**
   * Undefined for a runtime that cannot lose its engine. While `connecting`, every member except `name` throws
   * EngineUnavailableError.
   */
  readonly engine?: EngineState;
  /** A UUID, constant for as long as the engine keeps its sandboxes. It is also the id of the worker. */
  readonly engineId: string;
  /** The name of the machine, for operators. */
  readonly machine: string;
  readonly capacity: Capacity;
  /** One sentence for the operator, with the limits of this runtime. */
  readonly description: string;
  readonly capabilities: ReadonlySet<Capability>;
  /** The largest and the smallest sandbox. `openFiles`: the largest `nofile` limit of the kernel, if known. */
  readonly bounds: { vcpus: number; memoryMib: number; smallestMemoryMib: number; openFiles?: number };

  /**
   * Makes this process the one that acts on the engine. It drops cached state, because a predecessor acted until now.
   * Only `close` and `logs` may be called earlier. `term` becomes invalid when the lease is lost; a successor may act
   * from then on.
   */
  takeOver(term: { readonly valid: boolean }): Promise<void>;
  /**
   * Resolves when the run has started; a run that has already started is not started again. Throws StartRefusedError
   * for a permanent refusal.
   */
  start(run: Run, signal: AbortSignal): Promise<void>;
  /** Asks the sandbox to end, and kills it after `graceMs`. Resolves when it has ended. Idempotent. */
  stop(sandboxId: string, graceMs: number): Promise<void>;
  /** Removes the sandbox with its disk. Idempotent. */
  destroy(sandboxId: string): Promise<void>;
  /** Everything that the engine keeps for this installation. */
  list(): Promise<Holding[]>;
  /** The activity of running sandboxes. Unknown sandboxes are left out. */
  activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>>;
  /**
   * Follows the log until the run ends or the signal aborts. For a stopped sandbox it yields the existing log, for an
   * unknown one nothing. A process without the lease may call it: it only reads.
   */
  logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<LogChunk>;
  /** Yields after a change. It may miss changes: `list` is authoritative. */
  watch(signal: AbortSignal): AsyncIterable<void>;
  close(): Promise<void>;
}
