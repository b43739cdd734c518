import type { Socket } from 'node:net';
import type { CommandState } from '../guest/command-end.js';
import type { Guest } from '../guest/guest.js';
import { ApiError } from '../http/errors.js';
import type { Instant } from '../lib/instant.js';
import type { ImageConfig } from '../registry/image-config.js';
import type { EngineAbilities } from '../spec/engine-abilities.js';
import type { RunSecrets, RunSpec } from '../spec/run-spec.js';
import type { RemovedBytes } from './removed-files.js';
import type { EngineArchives } from './snapshot-archives.js';

export interface Run {
  orgId: string;
  sandboxId: string;
  runId: string;
  /** The name of the sandbox, for people who look at the engine. */
  name: string;
  spec: RunSpec;
  secrets: RunSecrets;
  /** The caps of its volumes in GiB, by their ids. Volumes without a cap are left out. */
  capsGib?: ReadonlyMap<string, number>;
  /** The most runs that its organization may have at once. Null, default: any number. */
  mostRuns?: number | null;
  /** It waits in a pool for a create, whose command it may get after its start. Default: false. */
  isMember?: boolean;
  /** It continues the memory of the previous run, which a pause has saved. Default: false, the memory is removed. */
  resumes?: boolean;
}

/** The parts of a specification that a runtime can hand over to a sandbox that runs. `command`: with its entrypoint. */
export type LatePart = 'command' | 'scripts' | 'workdir';

/** The storage of volumes in an engine that keeps it. */
export interface EngineVolumes {
  /** In KiB, also before there is any storage. Undefined: the engine has nothing of the volume. */
  requestedKib(volumeId: string): number | undefined;
  /** In KiB. Undefined: the engine has no storage for the volume yet. Throws when the engine does not answer. */
  allocatedKib(volumeId: string): number | undefined;
  list(): { orgId: string; volumeId: string }[];
  remove(orgId: string, volumeId: string): Promise<void>;
}

/** An image of an organization, as a start asks for it. */
export interface WantedImage {
  orgId: string;
  image: string;
  pullPolicy: RunSpec['pullPolicy'];
}

export interface Capture {
  orgId: string;
  snapshotId: string;
  sandboxId: string;
  /**
   * Called with the bytes that the snapshot will have, when the sandbox can change its disk no more. Throws: no
   * capture. Default: any number may be written.
   */
  admit?: (bytes: number) => Promise<void>;
  /** Done when the disk is captured. Starts of the sandbox wait for it too. Default: nothing. */
  alongside?: () => Promise<void>;
}

/** `contentDigest`: of what the disk has above the snapshot or the image that it began with, such as `sha256:01ab…`. */
export interface Captured {
  /** The bytes of everything above the image, with the snapshots that the disk was made from. */
  bytes: number;
  contentDigest: string;
  /**
   * In MiB. The content is a layer of a disk of this size, in the format qcow2 with a file system of ext4. Undefined: a
   * layer of an image.
   */
  diskMib?: number;
}

/** A permanent refusal: the same capture would fail again. Users see the message. */
export class CaptureRefusedError extends Error {
  constructor(
    readonly code: 'disk_missing' | 'not_supported' | 'sandbox_changed' | 'too_many_layers',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The snapshots that an engine makes of the disks of sandboxes, and keeps. */
export interface EngineSnapshots {
  /** The configuration of the image below a sandbox. Undefined: the sandbox has no disk. */
  imageConfig(sandboxId: string): Promise<ImageConfig | undefined>;
  /**
   * The image that a start would have without a question to a registry, with the digest that its sandbox would have.
   * Nothing keeps it. Undefined: only a start tells. Default: each time.
   */
  imageAtHand?(wanted: WantedImage): Promise<{ digest: string; config: ImageConfig } | undefined>;
  /**
   * Captures the disk of a sandbox, which is paused meanwhile if it runs. Idempotent for each snapshot: a complete one
   * stays as it is. Nothing incomplete has its id. Throws CaptureRefusedError.
   */
  capture(capture: Capture, signal: AbortSignal): Promise<Captured>;
  /** The complete ones. */
  list(): Promise<{ orgId: string; snapshotId: string }[]>;
  /** Idempotent. False: a sandbox of the engine still needs it. */
  remove(snapshotId: string): Promise<boolean>;
  /** Removes what captures of earlier processes have left. The caller alone acts on the engine. */
  sweep(): Promise<void>;
}

/** A pause that the engine cannot make: the sandbox runs on. Users see the message. */
export class PauseRefusedError extends Error {}

/** The memory of sandboxes on the disk, for as long as they do not run. */
export interface EnginePauses {
  /**
   * Saves the memory of a sandbox that runs, and ends its run. Resolves when it has ended. Idempotent. Throws
   * PauseRefusedError.
   */
  pause(sandboxId: string): Promise<void>;
  /** Removes the memory of a sandbox that does not run. Idempotent. */
  discard(sandboxId: string): Promise<void>;
}

/** The state that a runtime keeps for one sandbox. Times are exact to the microsecond. */
export interface Holding {
  orgId: string;
  sandboxId: string;
  runId: string;
  /**
   * `starting`: the engine has accepted the run, and starts it without another call. `unknown`: it does not answer for
   * this one.
   */
  state: 'prepared' | 'starting' | 'running' | 'exited' | 'unknown';
  startedAt: Instant | null;
  finishedAt: Instant | null;
  exit: Exit | null;
  /**
   * The reason for an end that the engine chose. With `prepared`: it may have started, and the engine has lost the
   * record of it.
   */
  failure?: RunFailure | null;
  /** The image of its disk, such as `sha256:01ab…`. Undefined: the engine does not tell. */
  imageDigest?: string | undefined;
  /** While it starts: why the engine has no room for it, in its own words. */
  noRoom?: string | null;
  /** The parts that this member of a pool takes from a create. Undefined: none. */
  takes?: readonly LatePart[] | undefined;
  /** It has ended, and its memory is on the disk: so many MiB of it, rounded up. Undefined: it is not. */
  savedMib?: number | undefined;
  /** The engine keeps the record of the end until `dropRecord`. */
  keepsRecord?: boolean;
}

/** A TCP port of a sandbox. */
export interface PortPlace {
  orgId: string;
  sandboxId: string;
  port: number;
}

export interface RunFailure {
  reason: 'evicted' | 'preempted' | 'node_lost' | 'deleted_by_cluster';
  /** For callers. */
  message: string;
}

export interface Exit {
  /** The exit code of the command when the run ends with it, otherwise that of process 1. */
  code: number;
  outOfMemory: boolean;
}

/** A permanent refusal: the same start would fail again. Users see the message. */
export class StartRefusedError extends Error {}

/** A later start may find room. Users see the message meanwhile. */
export class NoRoomError extends Error {}

/** `connecting`: the engine has not answered yet, so its id is unknown. */
export type EngineState = { state: 'up'; reason: null } | { state: 'connecting' | 'away'; reason: string };

export class EngineUnavailableError extends ApiError {
  constructor(runtime: string, reason: string | null) {
    const message = `the ${runtime} runtime cannot be used now: ${reason ?? 'its engine does not answer'}`;
    super('not_ready', message, { runtime }, { headers: { 'retry-after': '5' } });
  }
}

export interface Capacity {
  vcpus: number;
  memoryMib: number;
  /** Null: not counted. */
  diskMib: number | null;
}

/** The use of a run. Totals begin with the run. Undefined: the engine does not measure it. */
export interface Activity {
  cpuMicros: number;
  /** In milliseconds since 1970, by the clock of the engine. Default: now. */
  measuredAt?: number;
  /** Without the cache of files that the kernel can drop. */
  memoryBytes?: number;
  /** The memory of the machine that the sandbox takes: with that of its virtual machine, and of its monitor. */
  hostMemoryBytes?: number;
  processes?: number;
  /** The room that its own disk takes. */
  diskBytes?: number;
  /** The size of its disk, where the specification leaves it to the engine. */
  diskLimitBytes?: number;
  diskReadBytes?: number;
  diskWrittenBytes?: number;
  receivedBytes?: number;
  sentBytes?: number;
}

/** `output`: from a terminal. `system`: from the runtime. */
export const LOG_SOURCES = ['stdout', 'stderr', 'output', 'system'] as const;
export type LogSource = (typeof LOG_SOURCES)[number];

/** `nanos`: since 1970. `bytes`: of the stream with this time, up to the position. Infinity: all with this time. */
export interface LogPosition {
  nanos: bigint;
  bytes: number;
}

/** A line with its line break, or a part of a long line. `position`: its end. */
export interface LogChunk {
  source: LogSource;
  ts: string;
  text: string;
  position: LogPosition;
}

/** The streams that a reader can continue. */
export const LOG_STREAMS = ['stdout', 'stderr', 'system'] as const;
type LogStream = (typeof LOG_STREAMS)[number];

export interface LogQuery {
  sources: ReadonlySet<LogSource>;
  after: Partial<Record<LogStream, LogPosition>>;
}

export interface Runtime extends EngineAbilities {
  /** While `connecting`, all members but `name` throw EngineUnavailableError. Undefined: the engine cannot be lost. */
  readonly engine?: EngineState;
  /** A UUID, constant for as long as the engine keeps its sandboxes. It is also the id of the worker. */
  readonly engineId: string;
  readonly machine: string;
  /** The directory of the disks of sandboxes. Undefined: not on a disk of this machine. */
  readonly diskPath?: string | undefined;
  readonly capacity: Capacity;
  /** The engine queues and places runs by itself: every waiting run is passed on to it. Default: false. */
  readonly placesRuns?: boolean;
  /**
   * Each start asks the registry for the image, so the credentials of a sandbox stay until it is deleted. Default:
   * false.
   */
  readonly pullsEachStart?: boolean;
  readonly description: string;
  /** For operators, at each start of the service and in `/readyz`. Default: none. */
  readonly warnings?: readonly string[] | undefined;
  /** Undefined: volumes are directories of this machine. */
  readonly volumes?: EngineVolumes | undefined;
  /** Undefined: it makes none, and lacks the ability `disk_snapshots`. */
  readonly snapshots?: EngineSnapshots | undefined;
  /** Undefined: it makes none, and lacks the ability `pause`. */
  readonly pauses?: EnginePauses | undefined;
  /** Undefined: snapshots stay in the engine. */
  readonly snapshotArchives?: EngineArchives | undefined;

  /**
   * Drops cached state: a predecessor acted until now. `term` becomes invalid when the lease is lost, and a successor
   * may act.
   */
  takeOver(term: { readonly valid: boolean }): Promise<void>;
  /** The process stops to act. It has reported the traffic of the sandboxes when this resolves. */
  leave?(): Promise<void>;
  /** Idempotent for each run. Throws StartRefusedError. */
  start(run: Run, signal: AbortSignal): Promise<void>;
  /** Kills the sandbox after `graceMs`. Resolves when it has ended. Idempotent. */
  stop(sandboxId: string, graceMs: number): Promise<void>;
  /** Gives new secrets of the network to a sandbox that runs, if it does. Default: no engine has them. */
  changeSecrets?(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): Promise<void>;
  /**
   * Hands the late parts of the specification over to a sandbox that runs, and that was started as a member of a pool.
   * Idempotent for each run: a command starts once. Default: no member takes any.
   */
  handOver?(run: Run, signal: AbortSignal): Promise<void>;
  /** The digest to which the tag of the image leads now. Undefined: it has no tag, or nobody tells. */
  latestDigest?(run: Run, signal: AbortSignal): Promise<string | undefined>;
  /** The end of this run is in the store, so the engine may forget it. */
  dropRecord?(held: Holding): Promise<void>;
  /** Idempotent: the reconciler calls it again after a crash. */
  destroy(sandboxId: string): Promise<void>;
  /** `sandboxIds`: only theirs, if the runtime `listsSome`. */
  list(sandboxIds?: ReadonlySet<string>): Promise<Holding[]>;
  /** It can list some sandboxes, and `watch` yields the ids of those that changed. Default: false. */
  readonly listsSome?: boolean;
  /** The sandboxes for which the engine does not answer a call, and for how long. Default: it answers for all. */
  unanswered?(): ReadonlyMap<string, { call: string; ms: number }>;
  /** Unknown sandboxes are left out. */
  activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>>;
  /**
   * The commands of running sandboxes, as far as they can be told without work in the sandbox. The agent tells the
   * others. Default: none of them.
   */
  commandStates?(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>>;
  /**
   * Follows the log until the run ends. A process without the lease may call it. Each item is parsed while it is read
   * to its end.
   */
  logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>>;
  /** The bytes that the own disk of a sandbox takes, if known. Expensive: the engine walks through it. */
  diskUse(sandboxId: string): Promise<number | undefined>;
  /**
   * The bytes of files that a running sandbox has removed, and holds open. `diskUse` and a walk through a volume may
   * miss them. Default, and undefined: nobody can tell.
   */
  removedBytes?(sandboxId: string, signal: AbortSignal): Promise<RemovedBytes | undefined>;
  /** Removes from the disk what can be fetched again. */
  makeRoom(): Promise<void>;
  /** `openGuest` costs so little that it may be called before anybody needs it. Default: false. */
  readonly opensGuestsEarly?: boolean;
  /** The way into a running sandbox. Throws ApiError if the runtime runs no processes. */
  openGuest(sandboxId: string): Promise<{ guest: Guest; release: () => void }>;
  /**
   * A connection to a port on the loopback addresses of a running sandbox, without its agent. Either side may end its
   * direction alone. Undefined, default: the agent opens it. Throws ConnectError, or an ApiError at a limit. `signal`
   * ends the attempt.
   */
  connectPort?(place: PortPlace, signal: AbortSignal): Promise<Socket | undefined>;
  /**
   * Yields after a change: the ids of the changed sandboxes, or nothing when any may have changed. It may miss changes.
   */
  watch(signal: AbortSignal): AsyncIterable<readonly string[] | void>;
  close(): Promise<void>;
}
