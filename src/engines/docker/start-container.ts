import type Docker from 'dockerode';
import { VolumeDiskError } from '../../volumes/storage/disks/errors.js';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { noRoomWords } from '../../engine/no-room.js';
import { hasFiles } from '../../engine/run-files.js';
import { isBaseline, nameOfNew, nameOfNext, parseEngineTime, runOfContainer } from './container-name.js';
import { containerLabels, containerOptions, hasGuestFiles, IMAGE_LABEL } from './container.js';
import { createContainer } from './create-container.js';
import { DISK_WRITES, disksOf } from './disk-writes.js';
import { checkDiskLimit } from './disk-quota.js';
import { CONFLICT, engineMessage, NOT_MODIFIED, statusOf, UNAVAILABLE } from './errors.js';
import { canMove, checkAccountFiles } from './files/account-files.js';
import { populateContainer } from './files/populate-container.js';
import type { EngineImage } from './images/engine-image.js';
import { NO_ROOM } from './no-room.js';
import type { Bind } from './mounts/staging-directory.js';
import type { GuestFile } from './mounts/guest-files.js';
import { PROCESSES } from './options.js';
import type { DiskCaptures } from './snapshots/disk-captures.js';
import { setHostName } from './network/host-name.js';
import { RoomRetries } from './room-retries.js';
import { explainOwnLimit, explainStartFailure } from './start-failure.js';
import { installAuthorities } from './trust/install-authorities.js';
import { authoritiesFor } from '../../machine-network/trust/authorities.js';
import { trustsMore } from '../../machine-network/trust/trust-files.js';
import { findContainer, type DockerParts } from './parts.js';

/** Starts sandboxes: makes or renames their containers, with their files, mounts and networks. */
export class ContainerStarts {
  private readonly disks: readonly string[];
  /** The images whose users the engine can read. */
  private readonly checkedImages = new Set<string>();
  private readonly retries = new RoomRetries();
  private readonly naming = new Map<string, Promise<void>>();

  constructor(
    private readonly parts: DockerParts,
    private readonly captures: DiskCaptures,
  ) {
    this.disks = disksOf([parts.diskPath, parts.options.volumes.root]);
  }

  async start(run: Run, signal: AbortSignal): Promise<void> {
    this.retries.check(run.runId);
    await this.captures.ended(run.sandboxId, signal);
    if (signal.aborted) return;
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
      const release = await this.parts.places.acquire(run.orgId, signal);
      if (!release) throw new Error('the engine is busy with other starts');
      // A start that hangs costs the engine nothing, and must not take the places of others.
      const hangs = setTimeout(release, USUAL_START_MS);
      try {
        await this.parts.calls.track(
          run.sandboxId,
          'start',
          this.startPrepared(run, prepared, image, signal),
        );
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

  private async prepare(run: Run): Promise<Docker.Container | 'has_run' | undefined> {
    const found = await findContainer(this.parts, run.sandboxId);
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
    if (run.spec.pullPolicy !== 'always' || run.spec.snapshotId !== undefined) return undefined;
    const { [IMAGE_LABEL]: current } = (await container.inspect()).Config.Labels;
    const latest = current === undefined ? undefined : await this.parts.images.latestDigest(run, signal);
    if (latest === undefined || latest === current) return undefined;
    return this.parts.images.ensure(run, signal).catch((error: unknown) => {
      if (!(error instanceof StartRefusedError)) throw error;
      return undefined;
    });
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
      const { mode, hostName, resolverConfig } = await this.parts.networks.join(run, prepared);
      const container = prepared ?? (await this.create(run, image!, mounts.binds, { mode, hostName }));
      if (signal.aborted) return;
      await mounts.attach(resolverConfig);
      await this.checkAccounts(run, container, prepared ? undefined : image);
      if (trustsMore(run.spec)) await mounts.addGuestFiles(await this.installAuthorities(run, container));
      await container.start();
      if (hostName !== undefined) this.name(run.sandboxId, container, hostName);
      await this.parts.networks.confirm(run, container);
    } finally {
      await mounts.release();
    }
  }

  /** The start is recorded meanwhile. Process 1 waits for the name, and so does `named`. */
  private name(sandboxId: string, container: Docker.Container, hostName: string): void {
    const naming = setHostName(container, hostName)
      // The sandbox has ended, or it keeps the name of its network: it runs in either case.
      .catch(() => undefined)
      .finally(() => {
        if (this.naming.get(sandboxId) === naming) this.naming.delete(sandboxId);
      });
    this.naming.set(sandboxId, naming);
  }

  /** Resolves when a sandbox that has just started has its host name. */
  async named(sandboxId: string): Promise<void> {
    await this.naming.get(sandboxId);
  }

  private async installAuthorities(
    { spec }: Run,
    container: Docker.Container,
  ): Promise<ReadonlyMap<string, GuestFile>> {
    const { options, containerd } = this.parts;
    return installAuthorities(container, containerd, await authoritiesFor(spec, options.gateway));
  }

  /** A disk without patches and mounts of the caller has the files of its image. */
  private async checkAccounts(
    { spec }: Run,
    container: Docker.Container,
    fresh: EngineImage | undefined,
  ): Promise<void> {
    const isPlain = fresh !== undefined && spec.patches.length === 0 && spec.mounts.length === 0;
    if (isPlain && this.checkedImages.has(fresh.id)) return;
    await checkAccountFiles(container, await container.inspect(), this.parts.containerd);
    if (!isPlain) return;
    if (this.checkedImages.size >= CHECKED_IMAGES) this.checkedImages.clear();
    this.checkedImages.add(fresh.id);
  }

  private async create(
    run: Run,
    image: EngineImage,
    binds: readonly Bind[],
    network: { mode: string; hostName?: string | undefined },
  ): Promise<Docker.Container> {
    const { runtimeClass, defaultDiskMib = 0, processes = PROCESSES.default } = this.parts.options;
    const { writesMibPerSecond: mibPerSecond = DISK_WRITES.default } = this.parts.options;
    checkDiskLimit(run.spec, image);
    const sized = defaultDiskMib > 0 && this.parts.detected.capabilities.includes('disk_size');
    const diskMib = run.spec.diskMib ?? (sized ? defaultDiskMib : null);
    const hasScripts = hasGuestFiles(binds);
    if (!hasScripts) await this.parts.init.ensureVolume();
    const container = await createContainer(this.parts.docker, {
      name: nameOfNew(run),
      Labels: containerLabels(run, image, this.parts.instanceId),
      ...containerOptions({ ...run, spec: { ...run.spec, diskMib } }, image, {
        network: network.mode,
        hostName: network.hostName,
        init: this.parts.init,
        runtimeClass,
        processes,
        sharedCpuMillis: this.parts.bounds.sharedCpuMillis,
        writes: { disks: this.disks, mibPerSecond },
        controlGroup: this.parts.controlGroup,
        binds,
      }),
    });
    const mounts = binds.map(({ target }) => target);
    const check = mounts.some(canMove)
      ? async () => checkAccountFiles(container, await container.inspect(), this.parts.containerd)
      : undefined;
    const files = { user: image.user, mounts, hasScripts, check };
    await populateContainer(container, run.spec, files).catch((error: unknown) => {
      // The disk of the sandbox is full, which no wait mends.
      if (!/no space left|quota exceeded/.test(engineMessage(error))) throw error;
      throw new StartRefusedError(explainStartFailure(engineMessage(error)), { cause: error });
    });
    return container;
  }

  /** Something ended, so a start that waits may find room. */
  freed(): void {
    this.retries.freed();
  }
}

/** A start in the engine takes less, also while the engine starts many. */
const USUAL_START_MS = 15_000;
const CHECKED_IMAGES = 10_000;
