import type Docker from 'dockerode';
import {
  CaptureRefusedError,
  type Capture,
  type Captured,
  type EngineSnapshots,
} from '../../../engine/runtime.js';
import { sleep } from '../../../lib/sleep.js';
import { imageConfigOf, type ImageConfig } from '../../../registry/image-config.js';
import { IMAGE_LABEL, INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { ALREADY_REMOVED, CONFLICT, ignoreStatus, NOT_FOUND, SERVER_ERROR, statusOf } from '../errors.js';
import { findContainer, type DockerParts } from '../parts.js';
import { CAPTURE_COMMENT, listCommits } from './left-commits.js';
import {
  baseBytesOf,
  capturedOf,
  captureName,
  inspectSnapshot,
  listSnapshots,
  makeSnapshotImage,
  removeSnapshotImage,
  type InspectedImage,
} from './snapshot-image.js';

/** The layer store of Docker refuses a layer above so many (`maxLayerDepth`). Each snapshot of a snapshot adds one. */
export const MOST_LAYERS = 125;
/** The engine resumes a sandbox at the end of its commit. Without that end, nobody else does. */
const LONGEST_PAUSE_MS = 15 * 60_000;
const LOOK_EVERY_MS = 1_000;

const CHANGED =
  'the sandbox was started, stopped or deleted during the capture: repeat the request when it is at rest';

const UNKNOWN_END =
  'an earlier capture of the sandbox did not end in time and may resume it at any moment: repeat the request later';

/** A paused sandbox whose commit was requested by another process, or got no answer. */
interface StrangePause {
  noticedAt: number;
  /** When the service resumed it. The commit may go on, and would resume it in the middle of another capture. */
  forcedAt?: number;
}

interface OwnCapture {
  snapshotId: string;
  done: Promise<unknown>;
  /** The service has stopped or removed the sandbox meanwhile. */
  isDisturbed: boolean;
}

/**
 * Makes snapshots: the engine commits the writable layer of a container to an image, which then gets a configuration
 * without anything of the container. docs/decisions/0057-snapshots-are-images.md has the reasons.
 */
export class DiskCaptures implements EngineSnapshots {
  /** By sandbox. */
  private readonly capturing = new Map<string, OwnCapture>();
  /** By sandbox. */
  private readonly strange = new Map<string, StrangePause>();

  constructor(
    private readonly parts: Pick<DockerParts, 'docker' | 'untimed' | 'instanceId'>,
    private readonly longestPauseMs = LONGEST_PAUSE_MS,
  ) {}

  async measure(sandboxId: string): Promise<number | undefined> {
    const found = await findContainer(this.parts, sandboxId);
    if (!found) return undefined;
    const options = { size: true } as Docker.ContainerInspectOptions;
    const container = await this.parts.untimed
      .getContainer(found.Id)
      .inspect(options)
      .catch(ignoreStatus(NOT_FOUND));
    if (!container) return undefined;
    const below = await this.imageOf(container);
    const { SizeRw = 0 } = container as { SizeRw?: number };
    return below.Size - baseBytesOf(below, this.parts.instanceId) + SizeRw;
  }

  async imageConfig(sandboxId: string): Promise<ImageConfig | undefined> {
    const found = await findContainer(this.parts, sandboxId);
    const image = found && (await this.parts.docker.getImage(found.ImageID).inspect());
    if (!image) return undefined;
    return imageConfigOf(image.Config);
  }

  async capture(capture: Capture, signal: AbortSignal): Promise<Captured> {
    const { sandboxId, snapshotId } = capture;
    await this.ended(sandboxId, signal);
    await this.untilResumed(sandboxId, signal);
    signal.throwIfAborted();
    const entry: OwnCapture = { snapshotId, done: Promise.resolve(), isDisturbed: false };
    const work = this.captureNow(capture, entry).then(async (captured) => {
      await capture.alongside?.();
      return captured;
    });
    entry.done = work.catch(() => undefined);
    this.capturing.set(sandboxId, entry);
    try {
      return await work;
    } finally {
      this.capturing.delete(sandboxId);
    }
  }

  /** Resolves when no capture of the sandbox is in progress. A start before would change the disk that is captured. */
  async ended(sandboxId: string, signal?: AbortSignal): Promise<void> {
    for (let one = this.capturing.get(sandboxId); one; one = this.capturing.get(sandboxId)) {
      if (signal?.aborted) return;
      await settled(one.done, signal);
    }
  }

  /** The service stops or removes the sandbox, which resumes it. */
  disturb(sandboxId: string): void {
    const own = this.capturing.get(sandboxId);
    if (own) own.isDisturbed = true;
  }

  async list(): Promise<{ orgId: string; snapshotId: string }[]> {
    return listSnapshots(this.parts.docker, this.parts.instanceId);
  }

  async remove(snapshotId: string): Promise<boolean> {
    return removeSnapshotImage(this.parts.untimed, snapshotId);
  }

  async sweep(): Promise<void> {
    await this.removeLeftCommits();
    for (const sandboxId of this.strange.keys()) await this.look(sandboxId);
  }

  async takeOver(): Promise<void> {
    const { docker, instanceId } = this.parts;
    const paused = await docker.listContainers({
      filters: { label: [`${INSTANCE_LABEL}=${instanceId}`], status: ['paused'] },
    });
    for (const { Labels } of paused) {
      const sandboxId = Labels[SANDBOX_LABEL] ?? '';
      // The engine resumes it at the end of the capture of this process.
      if (!this.capturing.has(sandboxId)) this.noteStrange(sandboxId);
    }
  }

  private async captureNow(
    { orgId, snapshotId, sandboxId }: Capture,
    own: { readonly isDisturbed: boolean },
  ): Promise<Captured> {
    const { docker, untimed, instanceId } = this.parts;
    const found = await findContainer(this.parts, sandboxId);
    const before = found && (await docker.getContainer(found.Id).inspect().catch(ignoreStatus(NOT_FOUND)));
    const made = await inspectSnapshot(docker, { orgId, snapshotId });
    if (made) return capturedOf(made, before && (await this.imageOf(before)), instanceId);
    if (!before || before.State.Status === 'created') {
      throw new CaptureRefusedError('disk_missing', 'the sandbox has no disk on its engine: start it first');
    }
    const below = await this.imageOf(before);
    checkLayers(below);
    try {
      const committedId = await this.commit(before.Id, snapshotId, sandboxId);
      const after = await docker.getContainer(before.Id).inspect().catch(ignoreStatus(NOT_FOUND));
      if (own.isDisturbed || !after || momentOf(after) !== momentOf(before)) {
        throw new CaptureRefusedError('sandbox_changed', CHANGED);
      }
      const committed = await docker.getImage(committedId).inspect();
      const digest = before.Config.Labels[IMAGE_LABEL] ?? below.Id;
      const ids = { instanceId, orgId, snapshotId };
      const image = await makeSnapshotImage(untimed, ids, { committed, below, digest });
      return capturedOf(image, below, instanceId);
    } finally {
      // The sweep finds it after a failure.
      const committed = untimed.getImage(captureName(snapshotId));
      await committed.remove().catch(() => undefined);
    }
  }

  /** Returns the id of the image: the end of an earlier commit may take its name. */
  private async commit(containerId: string, snapshotId: string, sandboxId: string): Promise<string> {
    const [repo, tag] = captureName(snapshotId).split(':');
    try {
      const container = this.parts.untimed.getContainer(containerId);
      const { Id } = (await container.commit({ repo, tag, pause: true, comment: CAPTURE_COMMENT })) as {
        Id: string;
      };
      return Id;
    } catch (error) {
      const status = statusOf(error);
      if (status === undefined) this.noteStrange(sandboxId);
      if (status !== NOT_FOUND && status !== CONFLICT) throw error;
      throw new CaptureRefusedError('sandbox_changed', CHANGED, { cause: error });
    }
  }

  private async imageOf(container: Docker.ContainerInspectInfo): Promise<InspectedImage> {
    return this.parts.docker.getImage(container.Image).inspect();
  }

  private noteStrange(sandboxId: string): void {
    if (!this.strange.has(sandboxId)) this.strange.set(sandboxId, { noticedAt: performance.now() });
  }

  /** The end of an earlier commit would resume the sandbox in the middle of this one. */
  private async untilResumed(sandboxId: string, signal: AbortSignal): Promise<void> {
    while (this.strange.has(sandboxId) && !signal.aborted) {
      await this.look(sandboxId);
      const pause = this.strange.get(sandboxId);
      if (pause?.forcedAt !== undefined) throw new CaptureRefusedError('sandbox_changed', UNKNOWN_END);
      if (pause) await sleep(LOOK_EVERY_MS, signal);
    }
  }

  private async look(sandboxId: string): Promise<void> {
    const pause = this.strange.get(sandboxId);
    if (!pause) return;
    const found = await findContainer(this.parts, sandboxId);
    const now = performance.now();
    if (found?.State === 'paused') {
      if (now - pause.noticedAt < this.longestPauseMs) return;
      pause.forcedAt = now;
      this.disturb(sandboxId);
      const resuming = this.parts.docker.getContainer(found.Id).unpause();
      // It may have ended, or run again, by now.
      await resuming.catch(ignoreStatus(NOT_FOUND, CONFLICT, SERVER_ERROR));
    } else if (!found || now - (pause.forcedAt ?? -Infinity) > LONGEST_PAUSE_MS) {
      this.strange.delete(sandboxId);
    }
  }

  /** The engine completes a commit whose process was killed, and a repeated one takes the name of its image. */
  private async removeLeftCommits(): Promise<void> {
    const { docker, instanceId } = this.parts;
    const commits = await listCommits(docker, instanceId);
    const current = new Set([...this.capturing.values()].map(({ snapshotId }) => captureName(snapshotId)));
    for (const { id, names } of commits) {
      if (names.some((name) => current.has(name))) continue;
      // It may be that of a commit in progress, whose name another one took.
      if (names.length === 0 && this.capturing.size > 0) continue;
      await docker
        .getImage(id)
        .remove()
        .catch(ignoreStatus(...ALREADY_REMOVED));
    }
  }
}

function checkLayers({ RootFS: { Layers = [] } }: InspectedImage): void {
  if (Layers.length < MOST_LAYERS) return;
  throw new CaptureRefusedError(
    'too_many_layers',
    `the disk of the sandbox has ${Layers.length} layers below it, and the engine allows ${MOST_LAYERS}: copy the files to a sandbox of an image with fewer layers, and capture that sandbox`,
  );
}

/** Another value: the sandbox was started or stopped in between. */
function momentOf({ State, Name }: Docker.ContainerInspectInfo): string {
  return [Name, State.Running, State.Pid, State.StartedAt, State.FinishedAt].join(' ');
}

/** Resolves when the work is done, or at the abort. The signal may outlive the work, so its listener is removed. */
async function settled(work: Promise<unknown>, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const over = () => {
      signal?.removeEventListener('abort', over);
      resolve();
    };
    signal?.addEventListener('abort', over);
    void work.finally(over);
  });
}
