import Docker from 'dockerode';
import { sleep } from '../../lib/sleep.js';
import type { VolumeStore } from '../../volumes/storage/store.js';
import {
  StartRefusedError,
  type Activity,
  type Capability,
  type Capacity,
  type Holding,
  type LogChunk,
  type LogQuery,
  type Run,
  type Runtime,
} from '../runtime.js';
import {
  containerOptions,
  parseEngineTime,
  INSTANCE_LABEL,
  isBaseline,
  containerLabels,
  containerName,
  parseContainerName,
  SANDBOX_LABEL,
} from './container.js';
import { createContainer } from './create-container.js';
import { checkDiskLimit } from './disk-quota.js';
import { boundsOf, capacityOf, engineIdOf, type EngineInfo } from './engine-info.js';
import { engineMessage, explainStartFailure, statusOf, ignoreStatus } from './errors.js';
import { detectCapabilities, sharesKernel, type DetectedCapabilities } from './detect-capabilities.js';
import { hasFiles, populateContainer } from './files/populate-container.js';
import { InspectCache } from './inspect-cache.js';
import { ensureImage, type ImageConfig } from './image.js';
import { GuestInit } from './guest-init.js';
import { readLogStream, sinceOf } from './log-stream.js';
import type { Bind } from './mounts/staging-directory.js';
import { isPauseContainer } from './network/pause-container.js';
import { SandboxNetworks } from './network/sandbox-networks.js';
import type { GuardedGroup } from './network/compile-policy.js';

export interface DockerOptions {
  socketPath: string;
  /** A bridge network of the engine, or `none`. Default: one that the runtime creates. */
  network?: string | undefined;
  /** Default: the resolvers of the machine. */
  resolvers?: readonly string[];
  /** Guarded groups that policies may open. Default: none. */
  allow?: readonly GuardedGroup[];
  /** Such as `runsc`. Default: the engine's default. */
  runtimeClass?: string | undefined;
  volumes: VolumeStore;
  /** Overrides the capacity of the machine. */
  capacity?: Partial<Capacity>;
}

/**
 * Runs sandboxes as containers through the Docker Engine API (Docker or Podman). Each sandbox has one container, whose
 * disk survives its runs; `container-name.ts` tells the runs apart.
 */
export class DockerRuntime implements Runtime {
  readonly name = 'docker';
  readonly description: string;
  readonly capabilities: ReadonlySet<Capability>;

  private readonly holdings: InspectCache;

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
    private readonly init: GuestInit,
    private readonly features: DetectedCapabilities,
    private readonly networks: SandboxNetworks,
  ) {
    this.holdings = new InspectCache(docker);
    this.capabilities = new Set([...features.capabilities, ...networks.capabilities]);
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    const missing = features.missing.map((what) => `; ${what}`).join('');
    this.description = `docker: containers${kind} on Docker ${version}, network: ${networks.description}${missing}`;
  }

  /** Throws when no engine answers on the socket. */
  static async connect(instanceId: string, options: DockerOptions): Promise<DockerRuntime> {
    // A time limit protects against an engine that hangs. Pulls, logs and events have none.
    const docker = new Docker({ socketPath: options.socketPath, timeout: ANSWER_TIMEOUT_MS });
    const patient = new Docker({ socketPath: options.socketPath });
    const info = (await docker.info()) as EngineInfo;
    const init = new GuestInit(docker, info.Architecture);
    await init.ensureVolume();
    const features = await detectCapabilities(docker, info, {
      ...{ instanceId, volumes: options.volumes, runtimeClass: options.runtimeClass },
    });
    return new DockerRuntime(
      docker,
      patient,
      instanceId,
      options,
      await engineIdOf(docker, info, instanceId),
      info.Name,
      { ...capacityOf(info), ...options.capacity },
      boundsOf(info, options.runtimeClass),
      info.ServerVersion,
      init,
      features,
      await SandboxNetworks.open(docker, {
        ...{ instanceId, name: options.network, resolvers: options.resolvers, lifted: options.allow ?? [] },
        unmountable: features.mounts.unusable,
        ...{ init, sharesKernel: sharesKernel(info, options.runtimeClass) },
      }),
    );
  }

  async takeOver(): Promise<void> {
    this.holdings.forget();
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
      // Without an answer, or while the engine is busy, a retry may succeed. Other errors are permanent.
      const status = statusOf(error);
      if (status === undefined || status === CONFLICT || status === UNAVAILABLE) throw error;
      throw new StartRefusedError(explainStartFailure(engineMessage(error)), { cause: error });
    } finally {
      leave();
    }
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    const found = await this.find(sandboxId);
    if (!found) return;
    const container = this.docker.getContainer(found.Id);
    const ending = graceMs > 0 ? container.stop({ t: Math.ceil(graceMs / 1000) }) : container.kill();
    await ending.catch(ignoreStatus(NOT_MODIFIED, NOT_FOUND, CONFLICT));
  }

  async destroy(sandboxId: string): Promise<void> {
    const leave = await this.networks.claim(sandboxId);
    try {
      const found = await this.find(sandboxId);
      if (found) {
        await this.docker
          .getContainer(found.Id)
          .remove({ force: true, v: true })
          // Conflict: the engine is already removing it.
          .catch(ignoreStatus(NOT_FOUND, CONFLICT));
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
    return this.holdings.look(containers.filter((container) => !isPauseContainer(container)));
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    const looks = this.holdings.containersOf(sandboxIds).map(async ({ id, sandboxId }) => {
      const stats = await this.docker
        .getContainer(id)
        .stats({ stream: false, 'one-shot': true })
        // The others are still measured.
        .catch(() => undefined);
      const nanos = stats?.cpu_stats.cpu_usage.total_usage;
      return nanos === undefined ? [] : [[sandboxId, { cpuMicros: nanos / 1_000 }] as const];
    });
    return new Map((await Promise.all(looks)).flat());
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<LogChunk> {
    try {
      const found = await this.find(sandboxId);
      if (!found) return;
      const stream = await this.patient.getContainer(found.Id).logs({
        ...{ follow: true, stdout: true, stderr: true, timestamps: true },
        // A number would lose the nanoseconds.
        since: sinceOf(query.after) as unknown as number,
        abortSignal: signal,
      });
      yield* readLogStream(stream as AsyncIterable<Buffer>, query);
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
        // `list` reports a lost engine. The next iteration listens again.
      }
      await sleep(1_000, signal);
    }
  }

  async close(): Promise<void> {
    await this.networks.close();
    await this.features.mounts.close();
  }

  /** Prepares the existing container, if any, for this run. */
  private async prepare(run: Run): Promise<Docker.Container | 'has_run' | undefined> {
    const found = await this.find(run.sandboxId);
    if (!found) return undefined;
    const container = this.docker.getContainer(found.Id);
    const { Name, State } = await container.inspect();
    const startedAt = parseEngineTime(State.StartedAt);
    const named = parseContainerName(Name);
    if (startedAt === null && hasFiles(run.spec)) {
      // A crash may have left it without some of its files. It has no data of its own yet.
      await container.remove({ force: true, v: true });
      return undefined;
    }
    if (named?.runId === run.runId) return isBaseline(startedAt, named.baseline) ? container : 'has_run';
    if (State.Running) throw new Error(`container ${found.Id} still has a run other than ${run.runId}`);
    await container.rename({ name: containerName(run, startedAt) });
    return container;
  }

  private async create(
    run: Run,
    image: ImageConfig,
    binds: readonly Bind[],
    network: string,
  ): Promise<Docker.Container> {
    const { runtimeClass } = this.options;
    checkDiskLimit(run.spec, image);
    await this.init.ensureVolume();
    const container = await createContainer(this.docker, {
      name: containerName(run, null),
      Labels: containerLabels(run, this.instanceId),
      ...containerOptions(run, image, { network, init: this.init, runtimeClass, binds }),
    });
    await populateContainer(container, run.spec);
    return container;
  }

  private async find(sandboxId: string): Promise<Docker.ContainerInfo | undefined> {
    const found = await this.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.instanceId}`, `${SANDBOX_LABEL}=${sandboxId}`] },
    });
    return found[0];
  }
}

const NOT_MODIFIED = 304;
const NOT_FOUND = 404;
const CONFLICT = 409;
const UNAVAILABLE = 503;
/** Longer than the longest grace period of a stop. */
const ANSWER_TIMEOUT_MS = 60_000;
