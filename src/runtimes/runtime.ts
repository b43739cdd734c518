import { ApiError } from '../http/errors.js';
import type { Integer } from '../lib/exact-json.js';
import type { Instant } from '../lib/instant.js';
import type { MountRequest } from '../sandboxes/spec/mount-schema.js';
import type { NetworkPolicy } from '../sandboxes/spec/network-schema.js';
import type { CreateSandboxRequest } from '../sandboxes/spec/schema.js';

export const RUNTIME_CHOICES = ['auto', 'docker', 'simulated'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];

/**
 * What a runtime is given to run: the request after defaults, without anything secret. Kept in the store, so that a
 * sandbox starts again as it was made.
 */
export interface RunSpec {
  image: string;
  pullPolicy: 'if_missing' | 'always' | 'never';
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
  /** Launched once at each start; null or empty: nothing is launched. */
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
  /** Null, and missing in what earlier versions kept: the public profile. */
  networkPolicy?: NetworkPolicy | null;
  /** Null or missing: the sandbox's id. */
  hostname?: string | null;
  /** The run ends with `cmd`. False or missing: it goes on without it. */
  endsWithCommand?: boolean;
  idleTimeoutSecs: number | null;
  maxDurationSecs: number | null;
  /** What it needs that not every worker of the runtime can enforce. */
  demands: Capability[];
}

/** A mount of a volume, and which one it is: the named one, or the organization's host volume. Nobody is shown the id. */
export type VolumeMount = Extract<MountRequest, { type: 'bind' | 'named' }> & { volumeId: string };
export type RunMount = Exclude<MountRequest, { type: 'bind' | 'named' }> | VolumeMount;

/** What a run is given in clear, and no store has so. */
export interface RunSecrets {
  /** For the pull of the image; null once it is there, and when none is needed. */
  registry: { username: string; password: string } | null;
  /** Values of `network.secrets`, by their variables. */
  values: Record<string, string>;
}

/** One run to start. The ids go with everything the runtime holds of it. */
export interface Run {
  orgId: string;
  sandboxId: string;
  runId: string;
  spec: RunSpec;
  secrets: RunSecrets;
}

/**
 * What only some runtimes can do. Admission finds out what a request needs of these and refuses, by the name of the
 * field, what the runtime does not have (`sandboxes/demands.ts`).
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

/**
 * What a runtime holds for one sandbox: its disk, and the run it was last given. Times are the runtime's own record,
 * to the microsecond.
 */
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
  /** The exit code of process 1: of the command, when the run ends with it. */
  code: number;
  outOfMemory: boolean;
}

/** The runtime says no for good: the same start would fail again. The message is shown to the user. */
export class StartRefusedError extends Error {}

/** Whether the engine of a runtime answers. `connecting`: nothing is known of it yet, not even which engine it is. */
export type EngineState = { state: 'up'; reason: null } | { state: 'connecting' | 'away'; reason: string };

/** The engine has not answered since the service started. */
export class EngineUnavailableError extends ApiError {
  constructor(runtime: string, reason: string | null) {
    const message = `the ${runtime} runtime cannot be used now: ${reason ?? 'its engine does not answer'}`;
    super('not_ready', message, { runtime }, { headers: { 'retry-after': '5' } });
  }
}

/** What a runtime can hold at once, all sandboxes together. */
export interface Capacity {
  vcpus: number;
  memoryMib: number;
  /** Null: not counted. */
  diskMib: number | null;
}

/** What the processes of a sandbox have done since they were started. */
export interface Activity {
  /** CPU time used, in microseconds. Falls only when the run is another one. */
  cpuMicros: number;
}

/** `output`: what a terminal shows, where there is one. `system`: what the runtime itself has to say. */
export const LOG_SOURCES = ['stdout', 'stderr', 'output', 'system'] as const;
export type LogSource = (typeof LOG_SOURCES)[number];

/** A piece of what a sandbox wrote: mostly a line, with its line break; of a long line, a part. */
export interface LogChunk {
  source: LogSource;
  /** RFC 3339. */
  ts: string;
  text: string;
}

export interface LogQuery {
  sources: ReadonlySet<LogSource>;
  /** Only what is later, in nanoseconds since 1970. Left out: from the beginning. */
  after: { stdout?: bigint; stderr?: bigint };
}

export interface Runtime {
  readonly name: string;
  /** Left out by a runtime that cannot lose its engine. While it is `connecting`, everything but the name throws EngineUnavailableError. */
  readonly engine?: EngineState;
  /** Which engine this is, a UUID: the same as long as what it holds is the same. Its worker has this id. */
  readonly engineId: string;
  /** The machine the engine is on, for people. */
  readonly machine: string;
  readonly capacity: Capacity;
  /** A sentence for the operator: what this runtime is and is not. */
  readonly description: string;
  readonly capabilities: ReadonlySet<Capability>;
  /** The largest and smallest sandbox it can hold. `openFiles`: the largest `nofile` limit of its kernel, where that is known. */
  readonly bounds: { vcpus: number; memoryMib: number; smallestMemoryMib: number; openFiles?: number };

  /**
   * This process has become the one that acts on the engine. What was read of it before may be out of date: a
   * predecessor acted on it until now. No other method but `close` and `logs` is
   * called earlier. `term`: in which it acts; it may be over in the middle, and a successor act already.
   */
  takeOver(term: { readonly valid: boolean }): Promise<void>;
  /**
   * Starts the run; resolves when it has started or when it already had. Throws StartRefusedError when it never will.
   * May be called again after a crash, and must then not start it twice.
   */
  start(run: Run, signal: AbortSignal): Promise<void>;
  /** Asks the sandbox to end within `graceMs`, then ends it. Resolves when it has ended; an ended one is no error. */
  stop(sandboxId: string, graceMs: number): Promise<void>;
  /** Removes everything held for the sandbox, its disk too. Holding nothing is no error. */
  destroy(sandboxId: string): Promise<void>;
  /** Everything it holds that is this installation's. */
  list(): Promise<Holding[]>;
  /** What these running sandboxes have done; one that it holds nothing of is left out. */
  activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>>;
  /**
   * What the sandbox wrote and goes on writing, until its run ends or the signal aborts. Of one that does not run, what
   * there is; of one that is not held, nothing. Only reads: also a process that does not act on the engine may call it.
   */
  logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<LogChunk>;
  /** Yields whenever something may have changed. It may miss changes: `list` is the truth. */
  watch(signal: AbortSignal): AsyncIterable<void>;
  close(): Promise<void>;
}
