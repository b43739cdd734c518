import Docker from 'dockerode';
import { v5 as uuidv5 } from 'uuid';
import { microsOf, parseInstant, type Instant } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import type { VolumeStore } from '../volumes/store.js';
import {
  containerOptions,
  labelsOf,
  nameOf,
  parseName,
  SANDBOX_LABEL,
  INSTANCE_LABEL,
} from './docker-container.js';
import { checkDisk } from './docker-disk.js';
import { findFeatures, sharesKernel, type FeatureInfo, type Features } from './docker-features.js';
import { needsFiles, placeFiles } from './docker-files.js';
import { DockerNetworks } from './docker-network.js';
import { isHolder } from './docker-network-holder.js';
import { engineMessage, ensureImage, statusOf, type ImageCommand } from './docker-image.js';
import { readLog, sinceOf } from './docker-logs.js';
import { plainWords } from './docker-messages.js';
import type { Bind } from './docker-mounts.js';
import type { Guarded } from './network-policy.js';
import {
  StartRefusedError,
  type Activity,
  type Capability,
  type Capacity,
  type Holding,
  type LogLine,
  type LogQuery,
  type Run,
  type Runtime,
} from './runtime.js';

export interface DockerOptions {
  socketPath: string;
  /** The Docker bridge network that sandboxes are on, one of our own unless said; `none` gives them no network. */
  network?: string | undefined;
  /** Who resolves names for the sandboxes; those of the machine unless said. */
  resolvers?: readonly string[];
  /** What the policies of sandboxes may open of the machine's surroundings; nothing unless said. */
  allow?: readonly Guarded[];
  /** The engine's name of what runs containers, such as `runsc`; its default unless said. */
  runtimeClass?: string | undefined;
  volumes: VolumeStore;
  /** In place of what the machine has. */
  capacity?: Partial<Capacity>;
}

/**
 * Runs sandboxes as containers through the Docker Engine API (Docker or Podman).
 *
 * One container a sandbox, kept between runs so that its disk is. What cannot change on a container once made, the run,
 * goes into its name; see `docker-container.ts`.
 */
export class DockerRuntime implements Runtime {
  readonly name = 'docker';
  readonly description: string;
  readonly capabilities: ReadonlySet<Capability>;

  /** Inspecting each container at each look would cost a request a container: what has not changed is remembered. */
  private known = new Map<string, Inspected>();

  private constructor(
    private readonly docker: Docker,
    private readonly patient: Docker,
    private readonly instanceId: string,
    private readonly options: DockerOptions,
    readonly engineId: string,
    readonly machine: string,
    readonly capacity: Capacity,
    readonly bounds: Runtime['bounds'],
    version: string,
    private readonly init: boolean,
    private readonly features: Features,
    private readonly networks: DockerNetworks,
  ) {
    this.capabilities = new Set([...features.capabilities, ...networks.capabilities]);
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    const lacks = features.lacks.map((what) => `; ${what}`).join('');
    this.description = `docker: containers${kind} on Docker ${version}, network: ${networks.description}${lacks}`;
  }

  /** Connects. Throws when no engine answers on the socket. `instanceId`: marks the containers that are ours. */
  static async connect(instanceId: string, options: DockerOptions): Promise<DockerRuntime> {
    // An engine that hangs must not hang us. What takes its time by nature goes through a client without a limit.
    const docker = new Docker({ socketPath: options.socketPath, timeout: ANSWER_TIMEOUT_MS });
    const patient = new Docker({ socketPath: options.socketPath });
    const info = (await docker.info()) as EngineInfo;
    const memoryMib = Math.floor(info.MemTotal / 1024 / 1024);
    const capacity = {
      vcpus: info.NCPU * CPU_OVERCOMMIT,
      memoryMib,
      // A disk without a quota takes what there is: there is nothing to count.
      diskMib: null,
      ...options.capacity,
    };
    const bounds = {
      vcpus: info.NCPU,
      memoryMib,
      // The engine refuses less than 6 MiB.
      smallestMemoryMib: 6,
    };
    const features = await findFeatures(docker, info, {
      ...{ instanceId, volumes: options.volumes, runtimeClass: options.runtimeClass },
    });
    return new DockerRuntime(
      docker,
      patient,
      instanceId,
      options,
      engineIdOf(info, (await docker.info()) as EngineInfo, instanceId),
      info.Name,
      capacity,
      bounds,
      info.ServerVersion,
      Boolean(info.InitBinary),
      features,
      await DockerNetworks.open(docker, {
        ...{ instanceId, name: options.network, resolvers: options.resolvers, lifted: options.allow ?? [] },
        unmountable: features.mounts.unusable,
        ...{ architecture: info.Architecture, sharesKernel: sharesKernel(info, options.runtimeClass) },
      }),
    );
  }

  async takeOver(): Promise<void> {
    this.known.clear();
    await this.features.mounts.sweep();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    const leave = await this.networks.claim(run.sandboxId);
    try {
      const prepared = await this.prepare(run);
      if (signal.aborted || prepared === 'has_run') return;
      const image = prepared
        ? undefined
        : await ensureImage(this.patient, run.spec, signal, run.secrets.registry ?? undefined);
      const mounts = await this.features.mounts.stage(run);
      try {
        signal.throwIfAborted();
        const { mode, names } = await this.networks.join(run, prepared);
        const container = prepared ?? (await this.create(run, image!, mounts.binds, mode));
        if (signal.aborted) return;
        await mounts.attach(names);
        await container.start();
        await this.networks.confirm(run, container);
      } finally {
        await mounts.release();
      }
    } catch (error) {
      if (signal.aborted || statusOf(error) === NOT_MODIFIED) return;
      // No answer, or that the engine is busy with the container, may be another one next time; any other is the last word.
      const status = statusOf(error);
      if (status === undefined || status === CONFLICT || status === UNAVAILABLE) throw error;
      throw new StartRefusedError(plainWords(engineMessage(error)), { cause: error });
    } finally {
      leave();
    }
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    const found = await this.find(sandboxId);
    if (!found) return;
    const container = this.docker.getContainer(found.Id);
    const ending = graceMs > 0 ? container.stop({ t: Math.ceil(graceMs / 1000) }) : container.kill();
    await ending.catch(unless(NOT_MODIFIED, NOT_FOUND, CONFLICT));
  }

  async destroy(sandboxId: string): Promise<void> {
    const leave = await this.networks.claim(sandboxId);
    try {
      const found = await this.find(sandboxId);
      if (found) {
        await this.docker
          .getContainer(found.Id)
          .remove({ force: true, v: true })
          // Conflict: the engine is removing it already.
          .catch(unless(NOT_FOUND, CONFLICT));
      }
      await this.networks.remove(sandboxId);
    } finally {
      leave();
    }
  }

  async list(): Promise<Holding[]> {
    const containers = await this.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.instanceId}`] },
    });
    this.networks.tidy(containers);
    const known: typeof this.known = new Map();
    const holdings: Holding[] = [];
    for (const container of containers) {
      if (isHolder(container)) continue;
      const fingerprint = `${container.Names[0]} ${container.State}`;
      const before = this.known.get(container.Id);
      if (before?.fingerprint === fingerprint) {
        known.set(container.Id, before);
        holdings.push(before.holding);
        continue;
      }
      let inspected: Inspected | undefined;
      try {
        inspected = await this.inspect(container.Id);
      } catch (error) {
        // One container that the engine cannot tell of holds up nobody else: what was known of the same run stands until
        // it can. Where nothing is, nothing is made up: a run left out would be recorded as lost.
        if (before === undefined || parseName(container.Names[0]!)?.runId !== before.holding.runId)
          throw error;
        known.set(container.Id, before);
        holdings.push(before.holding);
        continue;
      }
      if (!inspected) continue;
      holdings.push(inspected.holding);
      // The list and the inspection are two moments. Only where both saw the same may the one stand for the other.
      const settled = inspected.fingerprint === fingerprint && inspected.holding.state !== 'prepared';
      known.set(container.Id, { fingerprint: settled ? fingerprint : '', holding: inspected.holding });
    }
    this.known = known;
    return holdings;
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    const wanted = new Set(sandboxIds);
    const containers = [...this.known].filter(([, { holding }]) => wanted.has(holding.sandboxId));
    const looks = containers.map(async ([id, { holding }]) => {
      const stats = await this.docker
        .getContainer(id)
        .stats({ stream: false, 'one-shot': true })
        // Of one that cannot be looked at nothing is known; the others are looked at all the same.
        .catch(() => undefined);
      const nanos = stats?.cpu_stats.cpu_usage.total_usage;
      return nanos === undefined ? [] : [[holding.sandboxId, { cpuMicros: nanos / 1_000 }] as const];
    });
    return new Map((await Promise.all(looks)).flat());
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<LogLine> {
    try {
      const found = await this.find(sandboxId);
      if (!found) return;
      const stream = await this.patient.getContainer(found.Id).logs({
        ...{ follow: true, stdout: true, stderr: true, timestamps: true },
        // The types want a number, which would lose the nanoseconds.
        since: sinceOf(query.after) as unknown as number,
        abortSignal: signal,
      });
      yield* readLog(stream as AsyncIterable<Buffer>, query);
    } catch (error) {
      if (!signal.aborted && statusOf(error) !== NOT_FOUND) throw error;
    }
  }

  async *watch(signal: AbortSignal): AsyncIterable<void> {
    while (!signal.aborted) {
      try {
        const stream = await this.patient.getEvents({
          abortSignal: signal,
          filters: { type: ['container'], label: [`${INSTANCE_LABEL}=${this.instanceId}`] },
        });
        for await (const _ of stream) yield;
      } catch {
        // The engine went away: `list` reports it; here it only matters that we listen again when it is back.
      }
      await sleep(1_000, signal);
    }
  }

  async close(): Promise<void> {
    await this.networks.close();
    await this.features.mounts.close();
  }

  /** Makes the container that exists ready for this run, if one exists. */
  private async prepare(run: Run): Promise<Docker.Container | 'has_run' | undefined> {
    const found = await this.find(run.sandboxId);
    if (!found) return undefined;
    const container = this.docker.getContainer(found.Id);
    const { Name, State } = await container.inspect();
    const startedAt = engineTime(State.StartedAt);
    const named = parseName(Name);
    if (startedAt === null && needsFiles(run.spec)) {
      // Whether all its files were placed nobody knows any more. It has nothing of its own yet.
      await container.remove({ force: true, v: true });
      return undefined;
    }
    if (named?.runId === run.runId) return isBaseline(startedAt, named.baseline) ? container : 'has_run';
    if (State.Running) throw new Error(`container ${found.Id} runs another run than ${run.runId}`);
    await container.rename({ name: nameOf(run, baselineOf(startedAt)) });
    return container;
  }

  private async create(
    run: Run,
    image: ImageCommand,
    binds: readonly Bind[],
    network: string,
  ): Promise<Docker.Container> {
    const { runtimeClass } = this.options;
    checkDisk(run.spec, image);
    const container = await this.docker.createContainer({
      name: nameOf(run, baselineOf(null)),
      Labels: labelsOf(run, this.instanceId),
      ...containerOptions(run, image, { network, init: this.init, runtimeClass, binds }),
    });
    await placeFiles(container, run.spec);
    return container;
  }

  private async find(sandboxId: string): Promise<Docker.ContainerInfo | undefined> {
    const found = await this.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.instanceId}`, `${SANDBOX_LABEL}=${sandboxId}`] },
    });
    return found[0];
  }

  private async inspect(id: string): Promise<Inspected | undefined> {
    const inspected = await this.docker.getContainer(id).inspect().catch(unless(NOT_FOUND));
    const named = inspected && parseName(inspected.Name);
    if (!inspected || !named) return undefined;
    const { State } = inspected;
    const startedAt = engineTime(State.StartedAt);
    const { sandboxId, runId } = named;
    const ids = { orgId: inspected.Config.Labels['dev.sandkeep.org'] ?? '', sandboxId, runId };
    const started = !isBaseline(startedAt, named.baseline);
    const exited = started && !State.Running;
    return {
      fingerprint: `${inspected.Name} ${State.Status}`,
      holding: {
        ...ids,
        state: !started ? 'prepared' : exited ? 'exited' : 'running',
        startedAt: started ? startedAt : null,
        finishedAt: exited ? engineTime(State.FinishedAt) : null,
        exit: exited ? { code: State.ExitCode, outOfMemory: State.OOMKilled } : null,
      },
    };
  }
}

interface Inspected {
  /** Name and state. What is empty is looked at anew each time. */
  fingerprint: string;
  holding: Holding;
}

interface EngineInfo extends FeatureInfo {
  ID: string;
  Name: string;
  DockerRootDir: string;
  Architecture: string;
  NCPU: number;
  MemTotal: number;
  ServerVersion: string;
  InitBinary?: string;
}

/** CPUs are shared in time, so more of them can be given away than there are. */
const CPU_OVERCOMMIT = 4;

/** The namespace of the ids of engines (RFC 9562, version 5). */
const ENGINES = '3f0d8c62-6c0f-4f5e-9a3b-6c1d0e7a52b4';

const NOT_MODIFIED = 304;
const NOT_FOUND = 404;
const CONFLICT = 409;
const UNAVAILABLE = 503;
/** Longer than the longest grace a stop gives. */
const ANSWER_TIMEOUT_MS = 60_000;

/** Swallows the engine's answers of these statuses. */
function unless(...statuses: number[]): (error: unknown) => undefined {
  return (error) => {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return undefined;
  };
}

/** The engine writes nanoseconds, and the year 1 for "never". */
function engineTime(text: string): Instant | null {
  return text.startsWith('0001-') ? null : (parseInstant(text) ?? null);
}

/**
 * Docker has an id that stays. Podman makes up another at each question: there the machine and the folder say which it
 * is. `instanceId`: two installations on one engine are two workers.
 */
function engineIdOf(info: EngineInfo, again: EngineInfo, instanceId: string): string {
  const engine = info.ID === again.ID ? info.ID : `${info.Name} ${info.DockerRootDir}`;
  return uuidv5(`${instanceId} ${engine}`, ENGINES);
}

/** What a container's start time was before the run its name says. While it is still that, the run has not started. */
function baselineOf(startedAt: Instant | null): string {
  return startedAt === null ? '0' : microsOf(startedAt).toString(36);
}

function isBaseline(startedAt: Instant | null, baseline: string): boolean {
  return baselineOf(startedAt) === baseline;
}
