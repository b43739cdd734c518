import Docker from 'dockerode';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { sleep } from '../../lib/sleep.js';
import { VolumeDiskError } from '../../volumes/storage/disks/errors.js';
import type { VolumeStore } from '../../volumes/storage/store.js';
import type { CommandState } from '../../guest/command-end.js';
import {
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
import { hasFiles } from '../../engine/run-files.js';
import { isBaseline, nameOfNew, nameOfNext, parseEngineTime, runOfContainer } from './container-name.js';
import { readHostRecord } from './command-lines.js';
import {
  containerLabels,
  containerOptions,
  hasGuestFiles,
  IMAGE_LABEL,
  INSTANCE_LABEL,
  SANDBOX_LABEL,
} from './container.js';
import type { ContainerdPlace } from './containerd.js';
import { openControlGroup } from './control-group.js';
import { createContainer } from './create-container.js';
import { detectCapabilities, sharesKernel, type DetectedCapabilities } from './detect-capabilities.js';
import { DISK_WRITES, disksOf } from './disk-writes.js';
import { checkDiskLimit } from './disk-quota.js';
import {
  boundsOf,
  capacityOf,
  engineIdOf,
  goArchitecture,
  startSlots,
  type EngineInfo,
} from './engine-info.js';
import {
  ALREADY_REMOVED,
  CONFLICT,
  engineMessage,
  ignoreStatus,
  NOT_FOUND,
  NOT_MODIFIED,
  statusOf,
  UNAVAILABLE,
} from './errors.js';
import { canMove, checkAccountFiles } from './files/account-files.js';
import { populateContainer } from './files/populate-container.js';
import { GuestInit } from './guest-init.js';
import { DockerGuests } from './guests.js';
import type { EngineImage } from './images/engine-image.js';
import { Images } from './images/images.js';
import type { PullOptions } from '../../engine/definition.js';
import { InspectCache } from './inspect-cache.js';
import { readLogStream, sinceOf } from './log-stream.js';
import { measureUse } from './measure-use.js';
import { NO_ROOM } from './no-room.js';
import type { Bind } from './mounts/staging-directory.js';
import type { GuardedGroup } from '../../network-policy/guarded-groups.js';
import { isPauseContainer } from './network/pause-container.js';
import { SandboxNetworks } from './network/sandbox-networks.js';
import { PROCESSES } from './options.js';
import { RoomRetries } from './room-retries.js';
import { explainOwnLimit, explainStartFailure } from './start-failure.js';
import { UnansweredCalls, type Unanswered } from './unanswered-calls.js';

export interface DockerOptions {
  socketPath: string;
  /** A bridge network of the engine, or `none`. Default: one of the installation's own. */
  network?: string | undefined;
  resolvers?: readonly string[] | undefined;
  /** Guarded groups that policies may open. Default: none. */
  allow?: readonly GuardedGroup[];
  /** Mbit/s of the network of each sandbox in each direction, from its next start on. 0: no limit. */
  bandwidthMbits?: number | undefined;
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
}

interface DockerRuntimeParts {
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
  /** The engine makes more containers at once no faster, and each of them later. */
  starts: SlotQueue;
  images: Images;
  controlGroup: string | undefined;
  containerd: ContainerdPlace | undefined;
}

/** Runs sandboxes as containers of Docker. Each sandbox has one container, whose disk survives its runs. */
export class DockerRuntime implements Runtime {
  readonly engineId: string;
  readonly machine: string;
  readonly diskPath: string;
  readonly capacity: Capacity;
  readonly bounds: Runtime['bounds'];
  readonly name = 'docker';
  readonly description: string;
  readonly capabilities: ReadonlySet<Capability>;
  readonly lacks: DetectedCapabilities['lacks'];

  private readonly disks: readonly string[];
  private readonly inspections: InspectCache;
  private readonly calls = new UnansweredCalls();
  /** The images whose users the engine can read. */
  private readonly checkedImages = new Set<string>();
  private readonly guests: DockerGuests;
  private readonly retries = new RoomRetries();
  private readonly measuring = new Map<string, Promise<number | undefined>>();

  private constructor(private readonly parts: DockerRuntimeParts) {
    const { docker, untimed, options, diskPath, version, detected, networks, containerd } = parts;
    this.engineId = parts.engineId;
    this.machine = parts.machine;
    this.diskPath = parts.diskPath;
    this.capacity = parts.capacity;
    this.bounds = parts.bounds;
    this.disks = disksOf([diskPath, options.volumes.root]);
    this.inspections = new InspectCache(docker, this.calls);
    this.guests = new DockerGuests(untimed, containerd);
    this.capabilities = new Set([...detected.capabilities, ...networks.capabilities]);
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    this.lacks = detected.lacks;
    const missing = detected.missing.map((what) => `; ${what}`).join('');
    this.description = `docker: containers${kind} on Docker ${version}, network: ${networks.description}${missing}`;
  }

  static async connect(instanceId: string, options: DockerOptions): Promise<DockerRuntime> {
    // For images, logs and events.
    const docker = new Docker({ socketPath: options.socketPath, timeout: ANSWER_TIMEOUT_MS });
    const untimed = new Docker({ socketPath: options.socketPath });
    const info = (await docker.info()) as EngineInfo;
    const init = new GuestInit(docker, info.Architecture);
    await init.ensureVolume();
    const detected = await detectCapabilities(docker, info, {
      instanceId,
      volumes: options.volumes,
      programs: init.programs,
      runtimeClass: options.runtimeClass,
    });
    return new DockerRuntime({
      docker,
      untimed,
      instanceId,
      options,
      engineId: await engineIdOf(docker, info, instanceId),
      machine: info.Name,
      diskPath: info.DockerRootDir,
      capacity: { ...capacityOf(info), ...options.capacity },
      bounds: boundsOf(info, options.runtimeClass, options.sharedCpuMillis),
      version: info.ServerVersion,
      init,
      detected,
      networks: await SandboxNetworks.open(docker, {
        instanceId,
        name: options.network,
        resolvers: options.resolvers,
        openableGroups: options.allow ?? [],
        bandwidthMbits: options.bandwidthMbits ?? 0,
        unmountable: detected.mounts.unavailable,
        init,
        sharesKernel: sharesKernel(info, options.runtimeClass),
      }),
      starts: new SlotQueue({ ...startSlots(info.NCPU), maxWaitMs: LONGEST_WAIT_MS }),
      images: new Images(untimed, goArchitecture(info), options.pulls),
      controlGroup: openControlGroup(info),
      containerd: info.Containerd,
    });
  }

  async takeOver(): Promise<void> {
    this.inspections.forget();
    await this.parts.detected.mounts.sweep();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    this.retries.check(run.runId);
    const unclaim = await this.parts.networks.claim(run.sandboxId);
    try {
      const found = await this.prepare(run);
      if (signal.aborted || found === 'has_run') return;
      await this.parts.detected.mounts.holdToCaps(run, signal);
      if (signal.aborted) return;
      const newer = found && (await this.newerImage(run, found, signal));
      if (newer) await found.remove({ force: true, v: true });
      const prepared = newer ? undefined : found;
      const image = prepared ? undefined : (newer ?? (await this.parts.images.ensure(run, signal)));
      const release = await this.parts.starts.acquire(run.orgId, signal);
      if (!release) throw new Error('the engine is busy with other starts');
      // A start that hangs costs the engine nothing, and must not take the places of others.
      const hangs = setTimeout(release, USUAL_START_MS);
      try {
        await this.calls.track(run.sandboxId, 'start', this.startPrepared(run, prepared, image, signal));
        this.retries.succeeded(run.runId);
      } finally {
        clearTimeout(hangs);
        release();
      }
    } catch (error) {
      if (signal.aborted || statusOf(error) === NOT_MODIFIED) return;
      if (error instanceof VolumeDiskError) throw this.retries.note(run.runId, error.message);
      // Without an answer, or while the engine is busy, a retry may succeed. Other errors are permanent.
      const status = statusOf(error);
      if (status === undefined || status === CONFLICT || status === UNAVAILABLE) throw error;
      const ownLimit = explainOwnLimit(engineMessage(error), run.spec.rlimits);
      if (ownLimit !== undefined) throw new StartRefusedError(ownLimit, { cause: error });
      const noRoom = noRoomWords(NO_ROOM, engineMessage(error));
      if (noRoom !== undefined) throw this.retries.note(run.runId, noRoom);
      throw new StartRefusedError(explainStartFailure(engineMessage(error)), { cause: error });
    } finally {
      this.parts.images.release(run);
      unclaim();
    }
  }

  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return this.parts.images.latestDigest(run, signal);
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    const found = await this.findContainer(sandboxId);
    if (!found) return;
    const container = this.parts.docker.getContainer(found.Id);
    const ending = graceMs > 0 ? container.stop({ t: Math.ceil(graceMs / 1000) }) : container.kill();
    await this.calls.track(sandboxId, 'stop', ending).catch(ignoreStatus(NOT_MODIFIED, NOT_FOUND, CONFLICT));
    this.retries.freed();
  }

  async destroy(sandboxId: string): Promise<void> {
    const unclaim = await this.parts.networks.claim(sandboxId);
    try {
      const found = await this.findContainer(sandboxId);
      if (found) {
        const removing = this.parts.docker.getContainer(found.Id).remove({ force: true, v: true });
        await this.calls.track(sandboxId, 'removal', removing).catch(ignoreStatus(...ALREADY_REMOVED));
      }
      await this.parts.networks.remove(sandboxId);
      this.retries.freed();
    } finally {
      unclaim();
    }
  }

  async list(): Promise<Holding[]> {
    const containers = await this.parts.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.parts.instanceId}`] },
    });
    this.parts.networks.repair(containers);
    this.calls.keepOnly(new Set(containers.map(({ Labels }) => Labels[SANDBOX_LABEL] ?? '')));
    return this.inspections.list(containers.filter((container) => !isPauseContainer(container)));
  }

  unanswered(): Map<string, Unanswered> {
    return this.calls.all();
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    return measureUse(this.parts.docker, this.inspections.containersOf(sandboxIds));
  }

  async commandStates(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>> {
    const states = new Map<string, CommandState>();
    for (const { id, sandboxId, pid } of this.inspections.containersOf(sandboxIds)) {
      const state = pid > 0 ? await readHostRecord(id, pid) : undefined;
      if (state !== undefined) states.set(sandboxId, state);
    }
    return states;
  }

  async makeRoom(): Promise<void> {
    await this.parts.images.makeRoom();
  }

  async diskUse(sandboxId: string): Promise<number | undefined> {
    // The engine goes on when nobody waits for it.
    const begun = this.measuring.get(sandboxId) ?? this.measureDisk(sandboxId);
    this.measuring.set(sandboxId, begun);
    return begun.finally(() => this.measuring.delete(sandboxId));
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>> {
    try {
      const found = await this.findContainer(sandboxId);
      if (!found) return;
      const stream = await this.parts.untimed.getContainer(found.Id).logs({
        follow: true,
        stdout: true,
        stderr: true,
        timestamps: true,
        // A number would lose the nanoseconds.
        since: sinceOf(query.after) as unknown as number,
        abortSignal: signal,
      });
      yield* readLogStream(stream as AsyncIterable<Buffer>, query);
    } catch (error) {
      if (!signal.aborted && statusOf(error) !== NOT_FOUND) throw error;
    }
  }

  async openGuest(sandboxId: string): ReturnType<Runtime['openGuest']> {
    const found = await this.findContainer(sandboxId);
    if (!found) throw new Error(`the engine has no container of the sandbox ${sandboxId}`);
    return this.guests.open(found.Id);
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    while (!signal.aborted) {
      try {
        const stream = await this.parts.untimed.getEvents({
          abortSignal: signal,
          filters: { type: ['container'], label: [`${INSTANCE_LABEL}=${this.parts.instanceId}`] },
        });
        for await (const _ of stream) yield;
      } catch {
        // `list` reports a lost engine.
      }
      await sleep(1_000, signal);
    }
  }

  async close(): Promise<void> {
    this.guests.close();
    await this.parts.networks.close();
    await this.parts.detected.mounts.close();
  }

  private async prepare(run: Run): Promise<Docker.Container | 'has_run' | undefined> {
    const found = await this.findContainer(run.sandboxId);
    if (!found) return undefined;
    const container = this.parts.docker.getContainer(found.Id);
    const { Name, State, HostConfig, Config } = await container.inspect();
    const startedAt = parseEngineTime(State.StartedAt);
    const named = runOfContainer(Name, Config.Labels);
    if (startedAt === null && hasFiles(run.spec)) {
      // A crash may have left it without some of its files.
      await container.remove({ force: true, v: true });
      return undefined;
    }
    if (named?.runId === run.runId) return isBaseline(startedAt, named.baseline) ? container : 'has_run';
    if (State.Running) throw new Error(`container ${found.Id} still has a run other than ${run.runId}`);
    const { processes = PROCESSES.default } = this.parts.options;
    if (HostConfig.PidsLimit !== processes) await container.update({ PidsLimit: processes });
    await container.rename({ name: nameOfNext(run, startedAt) });
    return container;
  }

  /** Without an answer of the registry a disk stays, and starts. */
  private async newerImage(
    run: Run,
    container: Docker.Container,
    signal: AbortSignal,
  ): Promise<EngineImage | undefined> {
    if (run.spec.pullPolicy !== 'always') return undefined;
    const { [IMAGE_LABEL]: current } = (await container.inspect()).Config.Labels;
    const latest = current === undefined ? undefined : await this.parts.images.latestDigest(run, signal);
    if (latest === undefined || latest === current) return undefined;
    return this.parts.images.ensure(run, signal).catch((error: unknown) => {
      if (!(error instanceof StartRefusedError)) throw error;
      return undefined;
    });
  }

  private async measureDisk(sandboxId: string): Promise<number | undefined> {
    const [found] = this.inspections.containersOf([sandboxId]);
    if (!found) return undefined;
    const options = { size: true } as Docker.ContainerInspectOptions;
    const container = await this.parts.untimed.getContainer(found.id).inspect(options);
    return (container as { SizeRw?: number }).SizeRw ?? 0;
  }

  private async startPrepared(
    run: Run,
    prepared: Docker.Container | undefined,
    image: EngineImage | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const mounts = await this.parts.detected.mounts.stage(run);
    try {
      signal.throwIfAborted();
      const { mode, resolverConfig } = await this.parts.networks.join(run, prepared);
      const container = prepared ?? (await this.create(run, image!, mounts.binds, mode));
      if (signal.aborted) return;
      await mounts.attach(resolverConfig);
      await this.checkAccounts(run, container, prepared ? undefined : image);
      await container.start();
      await this.parts.networks.confirm(run, container);
    } finally {
      await mounts.release();
    }
  }

  /** A disk without patches and mounts of the caller has the files of its image. */
  private async checkAccounts(
    { spec }: Run,
    container: Docker.Container,
    fresh: EngineImage | undefined,
  ): Promise<void> {
    const isPlain = fresh !== undefined && spec.patches.length === 0 && spec.mounts.length === 0;
    if (isPlain && this.checkedImages.has(fresh.id)) return;
    await checkAccountFiles(container, this.parts.containerd);
    if (!isPlain) return;
    if (this.checkedImages.size >= CHECKED_IMAGES) this.checkedImages.clear();
    this.checkedImages.add(fresh.id);
  }

  private async create(
    run: Run,
    image: EngineImage,
    binds: readonly Bind[],
    network: string,
  ): Promise<Docker.Container> {
    const { runtimeClass, defaultDiskMib = 0, processes = PROCESSES.default } = this.parts.options;
    const { writesMibPerSecond: mibPerSecond = DISK_WRITES.default } = this.parts.options;
    checkDiskLimit(run.spec, image);
    const sized = defaultDiskMib > 0 && this.capabilities.has('disk_size');
    const diskMib = run.spec.diskMib ?? (sized ? defaultDiskMib : null);
    const hasScripts = hasGuestFiles(binds);
    if (!hasScripts) await this.parts.init.ensureVolume();
    const container = await createContainer(this.parts.docker, {
      name: nameOfNew(run),
      Labels: containerLabels(run, image, this.parts.instanceId),
      ...containerOptions({ ...run, spec: { ...run.spec, diskMib } }, image, {
        network,
        init: this.parts.init,
        runtimeClass,
        processes,
        sharedCpuMillis: this.bounds.sharedCpuMillis,
        writes: { disks: this.disks, mibPerSecond },
        controlGroup: this.parts.controlGroup,
        binds,
      }),
    });
    const mounts = binds.map(({ target }) => target);
    const check = mounts.some(canMove)
      ? () => checkAccountFiles(container, this.parts.containerd)
      : undefined;
    const files = { user: image.user, mounts, hasScripts, check };
    await populateContainer(container, run.spec, files).catch((error: unknown) => {
      // The disk of the sandbox is full, which no wait mends.
      if (!/no space left|quota exceeded/.test(engineMessage(error))) throw error;
      throw new StartRefusedError(explainStartFailure(engineMessage(error)), { cause: error });
    });
    return container;
  }

  private async findContainer(sandboxId: string): Promise<Docker.ContainerInfo | undefined> {
    const found = await this.parts.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.parts.instanceId}`, `${SANDBOX_LABEL}=${sandboxId}`] },
    });
    return found[0];
  }
}

/** Longer than the longest grace period of a stop. */
const ANSWER_TIMEOUT_MS = 60_000;
const LONGEST_WAIT_MS = 3_600_000;
/** A start in the engine takes less, also while the engine starts many. */
const USUAL_START_MS = 15_000;
const CHECKED_IMAGES = 10_000;
