import Docker from 'dockerode';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { sleep } from '../../lib/sleep.js';
import type { CommandState } from '../../guest/command-end.js';
import type { RemovedBytes } from '../../engine/removed-files.js';
import {
  type Activity,
  type Capacity,
  type Holding,
  type LogChunk,
  type LogQuery,
  type PortPlace,
  type Run,
  type Runtime,
} from '../../engine/runtime.js';
import type { Capability } from '../../spec/capabilities.js';
import { CommandLines } from './command-lines.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from './container.js';
import { openControlGroup } from './control-group.js';
import { detectCapabilities, sharesKernel, type DetectedCapabilities } from './detect-capabilities.js';
import {
  boundsOf,
  capacityOf,
  engineIdOf,
  goArchitecture,
  startSlots,
  type EngineInfo,
} from './engine-info.js';
import { ALREADY_REMOVED, CONFLICT, ignoreStatus, NOT_FOUND, NOT_MODIFIED, statusOf } from './errors.js';
import { GuestInit } from './guest-init.js';
import { DockerGuests } from './guests.js';
import { Images } from './images/images.js';
import { InspectCache } from './inspect-cache.js';
import { readLogStream, sinceOf } from './log-stream.js';
import { measureUse } from './measure-use.js';
import { isGatewayHolder } from './network/gateway/holder-container.js';
import { isPauseContainer } from './network/pause-container.js';
import { SandboxNetworks } from './network/sandbox-networks.js';
import { DirectPorts } from './ports/direct-ports.js';
import type { ContainerProcess } from './container-namespace.js';
import { removedByContainer } from './removed-by-container.js';
import { DiskCaptures } from './snapshots/disk-captures.js';
import { DockerArchives } from './snapshots/docker-archives.js';
import { explainNoSnapshots } from './snapshots/explain-no-snapshots.js';
import { UnansweredCalls, type Unanswered } from './unanswered-calls.js';
import { Handovers } from './handovers.js';
import { ContainerStarts } from './start-container.js';
import { findContainer, type DockerOptions, type DockerParts } from './parts.js';

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

  private readonly inspections: InspectCache;
  private readonly commandLines = new CommandLines();
  private readonly guests: DockerGuests;
  /** Undefined: the containers have kernels of their own. */
  private readonly ports: DirectPorts | undefined;
  private readonly handovers: Handovers | undefined;
  private readonly starts: ContainerStarts;
  private readonly captures: DiskCaptures;
  private readonly archives: DockerArchives;
  private readonly measuring = new Map<string, Promise<number | undefined>>();

  private constructor(private readonly parts: DockerParts) {
    const { docker, untimed, options, version, detected, networks, containerd } = parts;
    this.engineId = parts.engineId;
    this.machine = parts.machine;
    this.diskPath = parts.diskPath;
    this.capacity = parts.capacity;
    this.bounds = parts.bounds;
    this.captures = new DiskCaptures(parts);
    this.archives = new DockerArchives(parts);
    this.starts = new ContainerStarts(parts, this.captures);
    this.inspections = new InspectCache(docker, parts.calls);
    if (parts.sharesKernel) {
      const find = async (sandboxId: string) => this.findProcess(sandboxId);
      this.ports = new DirectPorts({ instanceId: parts.instanceId, find });
      this.handovers = new Handovers(parts, this.ports);
    }
    this.guests = new DockerGuests(untimed, this.ports, containerd);
    const { noSnapshots } = parts;
    this.capabilities = new Set([
      ...detected.capabilities,
      ...networks.capabilities,
      ...(noSnapshots === undefined ? (['disk_snapshots'] as const) : []),
    ]);
    const kind = options.runtimeClass === undefined ? '' : ` by ${options.runtimeClass}`;
    const { lacksGateway } = networks;
    this.lacks = new Map([
      ...detected.lacks,
      ...(lacksGateway === undefined ? [] : [['network_domains', lacksGateway] as const]),
      ...(noSnapshots === undefined ? [] : [['disk_snapshots', noSnapshots] as const]),
    ]);
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
    const sharing = sharesKernel(info, options.runtimeClass);
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
        sandboxesPerBridge: options.sandboxesPerBridge,
        preparedNetworks: options.preparedNetworks,
        gateway: options.gateway,
        unmountable: detected.mounts.unavailable,
        init,
        sharesKernel: sharing,
      }),
      sharesKernel: sharing,
      places: new SlotQueue({ ...startSlots(info.NCPU), maxWaitMs: LONGEST_WAIT_MS }),
      images: new Images(untimed, goArchitecture(info), options.pulls),
      controlGroup: openControlGroup(info),
      containerd: info.Containerd,
      noSnapshots: explainNoSnapshots(info),
      calls: new UnansweredCalls(),
    });
  }

  async takeOver(term: { readonly valid: boolean }): Promise<void> {
    this.parts.networks.takeOver(term);
    this.inspections.forget();
    await this.captures.takeOver();
    await this.parts.detected.mounts.sweep();
  }

  get snapshots(): DiskCaptures | undefined {
    return this.parts.noSnapshots === undefined ? this.captures : undefined;
  }

  get snapshotArchives(): DockerArchives | undefined {
    return this.parts.noSnapshots === undefined ? this.archives : undefined;
  }

  async leave(): Promise<void> {
    await this.parts.networks.leave();
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    await this.starts.start(run, signal);
    if (run.isMember === true && !signal.aborted) await this.handovers?.prove(run.sandboxId);
  }

  async handOver(run: Run, signal: AbortSignal): Promise<void> {
    // Process 1 of a cold start waits for the name, too.
    await this.starts.named(run.sandboxId);
    await this.handovers?.handOver(run, signal);
  }

  async changeSecrets(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): Promise<void> {
    this.parts.networks.changeSecrets(run);
  }

  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return this.parts.images.latestDigest(run, signal);
  }

  async stop(sandboxId: string, graceMs: number): Promise<void> {
    const found = await findContainer(this.parts, sandboxId);
    if (!found) return;
    const container = this.parts.docker.getContainer(found.Id);
    // Right before the request: a capture that does not copy yet sees the stop, and copies nothing.
    const mustKill = this.captures.disturb(sandboxId);
    const ending =
      graceMs > 0 && !mustKill ? container.stop({ t: Math.ceil(graceMs / 1000) }) : container.kill();
    await this.parts.calls
      .track(sandboxId, 'stop', ending)
      .catch(ignoreStatus(NOT_MODIFIED, NOT_FOUND, CONFLICT));
    this.starts.freed();
  }

  async destroy(sandboxId: string): Promise<void> {
    this.handovers?.forget(sandboxId);
    const unclaim = await this.parts.networks.claim(sandboxId);
    try {
      const found = await findContainer(this.parts, sandboxId);
      if (found) {
        this.captures.disturb(sandboxId);
        const removing = this.parts.docker.getContainer(found.Id).remove({ force: true, v: true });
        await this.parts.calls.track(sandboxId, 'removal', removing).catch(ignoreStatus(...ALREADY_REMOVED));
      }
      await this.parts.networks.remove(sandboxId);
      this.starts.freed();
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
    this.commandLines.keepOnly(new Set(containers.map(({ Id }) => Id)));
    this.parts.calls.keepOnly(new Set(containers.map(({ Labels }) => Labels[SANDBOX_LABEL] ?? '')));
    const holdings = await this.inspections.list(
      containers.filter((container) => !isPauseContainer(container) && !isGatewayHolder(container)),
    );
    return holdings.map((holding) => ({ ...holding, takes: this.handovers?.takes(holding.sandboxId) }));
  }

  unanswered(): Map<string, Unanswered> {
    return this.parts.calls.all();
  }

  async activity(sandboxIds: readonly string[]): Promise<Map<string, Activity>> {
    return measureUse(this.parts.docker, this.inspections.containersOf(sandboxIds));
  }

  async commandStates(sandboxIds: readonly string[]): Promise<ReadonlyMap<string, CommandState>> {
    const states = new Map<string, CommandState>();
    for (const { id, sandboxId, pid } of this.inspections.containersOf(sandboxIds)) {
      const state = pid > 0 ? await this.commandLines.read(id, pid) : undefined;
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

  async removedBytes(sandboxId: string, signal: AbortSignal): Promise<RemovedBytes | undefined> {
    const [found] = this.inspections.containersOf([sandboxId]);
    return found && removedByContainer(found.id, found.pid, signal);
  }

  async *logs(sandboxId: string, query: LogQuery, signal: AbortSignal): AsyncIterable<Iterable<LogChunk>> {
    try {
      const found = await findContainer(this.parts, sandboxId);
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

  /** Where process 1 starts the agent. */
  get opensGuestsEarly(): boolean {
    return this.ports?.works ?? false;
  }

  async openGuest(sandboxId: string): ReturnType<Runtime['openGuest']> {
    const found = await findContainer(this.parts, sandboxId);
    if (!found) throw new Error(`the engine has no container of the sandbox ${sandboxId}`);
    await this.starts.named(sandboxId);
    return this.guests.open(found.Id);
  }

  async connectPort(place: PortPlace, signal: AbortSignal): ReturnType<NonNullable<Runtime['connectPort']>> {
    return this.ports?.connect(place, signal);
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
    await this.captures.close();
    this.commandLines.close();
    this.guests.close();
    this.ports?.close();
    await this.parts.networks.close();
    await this.parts.detected.mounts.close();
  }

  private async findProcess(sandboxId: string): Promise<ContainerProcess | undefined> {
    const containerId =
      this.inspections.containersOf([sandboxId])[0]?.id ?? (await findContainer(this.parts, sandboxId))?.Id;
    if (containerId === undefined) return undefined;
    const container = this.parts.docker.getContainer(containerId);
    const found = await container.inspect().catch(ignoreStatus(NOT_FOUND));
    return found?.State.Running ? { containerId, pid: found.State.Pid } : undefined;
  }

  private async measureDisk(sandboxId: string): Promise<number | undefined> {
    const [found] = this.inspections.containersOf([sandboxId]);
    if (!found) return undefined;
    const options = { size: true } as Docker.ContainerInspectOptions;
    const container = await this.parts.untimed.getContainer(found.id).inspect(options);
    return (container as { SizeRw?: number }).SizeRw ?? 0;
  }
}

/** Longer than the longest grace period of a stop. */
const ANSWER_TIMEOUT_MS = 60_000;
const LONGEST_WAIT_MS = 3_600_000;
