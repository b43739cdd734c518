import Docker from 'dockerode';
import { microsOf, parseInstant, type Instant } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import {
  containerOptions,
  labelsOf,
  nameOf,
  parseName,
  SANDBOX_LABEL,
  INSTANCE_LABEL,
} from './docker-container.js';
import { engineMessage, ensureImage, statusOf } from './docker-image.js';
import { StartRefusedError, type Capability, type Holding, type Run, type Runtime } from './runtime.js';

export interface DockerOptions {
  socketPath: string;
  /** The Docker network of sandboxes that ask for one; `none` gives them no network. */
  network: string;
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
  readonly capabilities = new Set<Capability>(['tmpfs']);

  /** Inspecting each container at each look would cost a request a container: what has not changed is remembered. */
  private known = new Map<string, { fingerprint: string; holding: Holding }>();

  private constructor(
    private readonly docker: Docker,
    private readonly patient: Docker,
    private readonly instanceId: string,
    private readonly options: DockerOptions,
    readonly bounds: Runtime['bounds'],
    version: string,
    private readonly init: boolean,
  ) {
    this.description = `docker: containers on Docker ${version}, network: ${options.network}`;
  }

  /** Connects. Throws when no engine answers on the socket. `instanceId`: marks the containers that are ours. */
  static async connect(instanceId: string, options: DockerOptions): Promise<DockerRuntime> {
    // An engine that hangs must not hang us. What takes its time by nature goes through a client without a limit.
    const docker = new Docker({ socketPath: options.socketPath, timeout: ANSWER_TIMEOUT_MS });
    const patient = new Docker({ socketPath: options.socketPath });
    const info = (await docker.info()) as EngineInfo;
    const bounds = {
      vcpus: info.NCPU,
      memoryMib: Math.floor(info.MemTotal / 1024 / 1024),
      // The engine refuses less than 6 MiB.
      smallestMemoryMib: 6,
    };
    return new DockerRuntime(
      docker,
      patient,
      instanceId,
      options,
      bounds,
      info.ServerVersion,
      Boolean(info.InitBinary),
    );
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    try {
      const container = (await this.prepare(run)) ?? (await this.create(run, signal));
      if (signal.aborted || container === 'has_run') return;
      await container.start();
    } catch (error) {
      if (signal.aborted || statusOf(error) === NOT_MODIFIED) return;
      // No answer, or that the engine is busy with the container, may be another one next time; any other is the last word.
      const status = statusOf(error);
      if (status === undefined || status === CONFLICT || status === UNAVAILABLE) throw error;
      throw new StartRefusedError(engineMessage(error), { cause: error });
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
    const found = await this.find(sandboxId);
    if (!found) return;
    await this.docker
      .getContainer(found.Id)
      .remove({ force: true, v: true })
      // Conflict: the engine is removing it already.
      .catch(unless(NOT_FOUND, CONFLICT));
  }

  async list(): Promise<Holding[]> {
    const containers = await this.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.instanceId}`] },
    });
    const known: typeof this.known = new Map();
    const holdings: Holding[] = [];
    for (const container of containers) {
      const fingerprint = `${container.Names[0]} ${container.State}`;
      const before = this.known.get(container.Id);
      if (before?.fingerprint === fingerprint) {
        known.set(container.Id, before);
        holdings.push(before.holding);
        continue;
      }
      const inspected = await this.inspect(container.Id);
      if (!inspected) continue;
      holdings.push(inspected.holding);
      // The list and the inspection are two moments. Only where both saw the same may the one stand for the other.
      if (inspected.fingerprint === fingerprint && inspected.holding.state !== 'prepared') {
        known.set(container.Id, { fingerprint, holding: inspected.holding });
      }
    }
    this.known = known;
    return holdings;
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
    return Promise.resolve();
  }

  /** Makes the container that exists ready for this run, if one exists. */
  private async prepare(run: Run): Promise<Docker.Container | 'has_run' | undefined> {
    const found = await this.find(run.sandboxId);
    if (!found) return undefined;
    const container = this.docker.getContainer(found.Id);
    const { Name, State } = await container.inspect();
    const startedAt = engineTime(State.StartedAt);
    const named = parseName(Name);
    if (named?.runId === run.runId) return isBaseline(startedAt, named.baseline) ? container : 'has_run';
    if (State.Running) throw new Error(`container ${found.Id} runs another run than ${run.runId}`);
    await container.rename({ name: nameOf(run, baselineOf(startedAt)) });
    return container;
  }

  private async create(run: Run, signal: AbortSignal): Promise<Docker.Container> {
    const image = await ensureImage(this.patient, run.spec, signal);
    signal.throwIfAborted();
    return this.docker.createContainer({
      name: nameOf(run, baselineOf(null)),
      Labels: labelsOf(run, this.instanceId),
      ...containerOptions(run.spec, image, { network: this.options.network, init: this.init }),
    });
  }

  private async find(sandboxId: string): Promise<Docker.ContainerInfo | undefined> {
    const found = await this.docker.listContainers({
      all: true,
      filters: { label: [`${INSTANCE_LABEL}=${this.instanceId}`, `${SANDBOX_LABEL}=${sandboxId}`] },
    });
    return found[0];
  }

  private async inspect(id: string): Promise<{ fingerprint: string; holding: Holding } | undefined> {
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

interface EngineInfo {
  NCPU: number;
  MemTotal: number;
  ServerVersion: string;
  InitBinary?: string;
}

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

/** What a container's start time was before the run its name says. While it is still that, the run has not started. */
function baselineOf(startedAt: Instant | null): string {
  return startedAt === null ? '0' : microsOf(startedAt).toString(36);
}

function isBaseline(startedAt: Instant | null, baseline: string): boolean {
  return baselineOf(startedAt) === baseline;
}
