import type Docker from 'dockerode';
import {
  CaptureRefusedError,
  type Capture,
  type Captured,
  type EngineSnapshots,
  type WantedImage,
} from '../../../engine/runtime.js';
import { sleep } from '../../../lib/sleep.js';
import { imageConfigOf, type ImageConfig } from '../../../registry/image-config.js';
import { IMAGE_LABEL, INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { ALREADY_REMOVED, CONFLICT, engineMessage, ignoreStatus, NOT_FOUND, statusOf } from '../errors.js';
import { findContainer, type DockerParts } from '../parts.js';
import { listCommits, newAttempt, type Attempt } from './left-commits.js';
import {
  baseBytesOf,
  capturedOf,
  inspectSnapshot,
  listSnapshots,
  makeSnapshotImage,
  removeSnapshotImage,
  type InspectedImage,
} from './snapshot-image.js';

/** The layer store of Docker refuses a layer above so many (`maxLayerDepth`). Each snapshot of a snapshot adds one. */
export const MOST_LAYERS = 125;

/**
 * A process freezes at its next turn on a processor. runc waits for all of them in windows of a millisecond, for 0.2 s
 * in all, and then lets them run on. Twenty busy processes miss every second attempt.
 */
const NOT_FROZEN = /unable to freeze/;
const PAUSE_ATTEMPTS = 20;
const PAUSE_RETRY_MS = 50;

const CHANGED =
  'the sandbox was started, stopped or deleted during the capture: repeat the request when it is at rest';

interface OwnCapture {
  attempt: Attempt;
  done: Promise<unknown>;
  /** The service has stopped or removed the sandbox meanwhile. */
  isDisturbed: boolean;
  /** The disk is measured or copied: nothing may change it. */
  isAtRest: boolean;
}

/**
 * Makes snapshots: the engine commits the writable layer of a container to an image, which then gets a configuration
 * without anything of the container. docs/decisions/0057-snapshots-are-images.md has the reasons.
 */
export class DiskCaptures implements EngineSnapshots {
  /** By sandbox. */
  private readonly capturing = new Map<string, OwnCapture>();
  /** Sandboxes that a capture has left paused: its process was killed, or the engine did not answer. */
  private readonly leftPaused = new Set<string>();

  constructor(private readonly parts: Pick<DockerParts, 'docker' | 'untimed' | 'instanceId' | 'images'>) {}

  async imageConfig(sandboxId: string): Promise<ImageConfig | undefined> {
    const found = await findContainer(this.parts, sandboxId);
    const image = found && (await this.parts.docker.getImage(found.ImageID).inspect());
    if (!image) return undefined;
    return imageConfigOf(image.Config);
  }

  async imageAtHand(wanted: WantedImage): Promise<{ digest: string; config: ImageConfig } | undefined> {
    return this.parts.images.atHand(wanted);
  }

  async capture(capture: Capture, signal: AbortSignal): Promise<Captured> {
    const { sandboxId } = capture;
    await this.ended(sandboxId, signal);
    signal.throwIfAborted();
    const entry: OwnCapture = {
      attempt: newAttempt(),
      done: Promise.resolve(),
      isDisturbed: false,
      isAtRest: false,
    };
    const work = this.captureNow(capture, entry, signal).then(async (captured) => {
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

  /**
   * The service stops or removes the sandbox, which resumes it. True: it must be killed, because in a grace period it
   * would change the disk that the engine copies.
   */
  disturb(sandboxId: string): boolean {
    const own = this.capturing.get(sandboxId);
    if (!own) return false;
    own.isDisturbed = true;
    return own.isAtRest;
  }

  async list(): Promise<{ orgId: string; snapshotId: string }[]> {
    return listSnapshots(this.parts.docker, this.parts.instanceId);
  }

  async remove(snapshotId: string): Promise<boolean> {
    return removeSnapshotImage(this.parts.untimed, snapshotId);
  }

  async sweep(): Promise<void> {
    await this.removeLeftCommits();
    await this.resumeLeft();
  }

  async takeOver(): Promise<void> {
    const { docker, instanceId } = this.parts;
    const paused = await docker.listContainers({
      filters: { label: [`${INSTANCE_LABEL}=${instanceId}`], status: ['paused'] },
    });
    for (const { Labels } of paused) {
      const sandboxId = Labels[SANDBOX_LABEL] ?? '';
      if (!this.capturing.has(sandboxId)) this.leftPaused.add(sandboxId);
    }
    await this.resumeLeft();
  }

  /** A later process repeats the captures in progress. Until then, their sandboxes run. */
  async close(): Promise<void> {
    for (const sandboxId of this.capturing.keys()) this.leftPaused.add(sandboxId);
    this.capturing.clear();
    await this.resumeLeft();
  }

  private async captureNow(
    { orgId, snapshotId, sandboxId, admit }: Capture,
    own: OwnCapture,
    signal: AbortSignal,
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
      const committedId = await this.atRest(before, { sandboxId, own }, async () => {
        // Not before the pause. The engine writes each zero of a sparse file, and nothing ends a commit: a guest that
        // lets such a file grow in between would fill the disk of all.
        await admit?.(await this.bytesOf(before.Id, below));
        // A stop before the pause has a grace period, in which the sandbox may be resumed.
        if (own.isDisturbed) throw new CaptureRefusedError('sandbox_changed', CHANGED);
        const id = await this.commit(before.Id, own.attempt);
        const after = await docker.getContainer(before.Id).inspect().catch(ignoreStatus(NOT_FOUND));
        if (own.isDisturbed || !after || momentOf(after) !== momentOf(before)) {
          throw new CaptureRefusedError('sandbox_changed', CHANGED);
        }
        // Such as by the take-over of another process. A repeated capture may succeed.
        if (before.State.Running && !after.State.Paused)
          throw new Error('the sandbox was resumed during its capture');
        return id;
      });
      // A commit takes minutes. Meanwhile this process may have lost the lease, and another one may have made the
      // snapshot: the bytes and the digest that it has recorded are those of its image.
      signal.throwIfAborted();
      const other = await inspectSnapshot(docker, { orgId, snapshotId });
      if (other) return capturedOf(other, below, instanceId);
      const committed = await docker.getImage(committedId).inspect();
      const digest = before.Config.Labels[IMAGE_LABEL] ?? below.Id;
      const ids = { instanceId, orgId, snapshotId };
      const image = await makeSnapshotImage(untimed, ids, { committed, below, digest });
      return capturedOf(image, below, instanceId);
    } finally {
      // The sweep finds it after a failure.
      await untimed
        .getImage(own.attempt.name)
        .remove()
        .catch(() => undefined);
    }
  }

  /** Pauses the sandbox during the work, if it runs. docs/decisions/0057-snapshots-are-images.md has the reason. */
  private async atRest<T>(
    { Id, State }: Docker.ContainerInspectInfo,
    { sandboxId, own }: { sandboxId: string; own: OwnCapture },
    work: () => Promise<T>,
  ): Promise<T> {
    // The engine calls a paused container running too.
    if (!State.Running || State.Paused) return work();
    own.isAtRest = true;
    try {
      await this.pause(Id);
      return await work();
    } finally {
      own.isAtRest = false;
      this.leftPaused.add(sandboxId);
      await this.resume(sandboxId);
    }
  }

  /** A stop in between kills the container, and the engine refuses the next attempt. */
  private async pause(containerId: string): Promise<void> {
    const container = this.parts.untimed.getContainer(containerId);
    for (let attempt = 1; ; attempt += 1) {
      try {
        await container.pause();
        return;
      } catch (error) {
        if (attempt === PAUSE_ATTEMPTS || !NOT_FROZEN.test(engineMessage(error))) refuseIfChanged(error);
      }
      await sleep(PAUSE_RETRY_MS);
    }
  }

  /** The bytes of everything above the image. */
  private async bytesOf(containerId: string, below: InspectedImage): Promise<number> {
    const options = { size: true } as Docker.ContainerInspectOptions;
    const container = await this.parts.untimed
      .getContainer(containerId)
      .inspect(options)
      .catch(refuseIfChanged);
    const { SizeRw = 0 } = container as { SizeRw?: number };
    return below.Size - baseBytesOf(below, this.parts.instanceId) + SizeRw;
  }

  /** Returns the id of the image. */
  private async commit(containerId: string, { name, comment }: Attempt): Promise<string> {
    const [repo, tag] = name.split(':');
    const container = this.parts.untimed.getContainer(containerId);
    const committed = await container.commit({ repo, tag, pause: false, comment }).catch(refuseIfChanged);
    return (committed as { Id: string }).Id;
  }

  private async imageOf(container: Docker.ContainerInspectInfo): Promise<InspectedImage> {
    return this.parts.docker.getImage(container.Image).inspect();
  }

  private async resumeLeft(): Promise<void> {
    for (const sandboxId of this.leftPaused) if (!this.capturing.has(sandboxId)) await this.resume(sandboxId);
  }

  /** Without an answer of the engine, the next sweep repeats it. */
  private async resume(sandboxId: string): Promise<void> {
    try {
      const found = await findContainer(this.parts, sandboxId);
      if (found?.State === 'paused') await this.parts.docker.getContainer(found.Id).unpause();
      this.leftPaused.delete(sandboxId);
    } catch {}
  }

  /** The engine completes a commit whose process was killed, at any time. */
  private async removeLeftCommits(): Promise<void> {
    const { docker, instanceId } = this.parts;
    const commits = await listCommits(docker, instanceId);
    const current = new Set([...this.capturing.values()].map(({ attempt }) => attempt.comment));
    for (const { id, comment } of commits) {
      if (current.has(comment)) continue;
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

function refuseIfChanged(error: unknown): never {
  const status = statusOf(error);
  if (status !== NOT_FOUND && status !== CONFLICT) throw error;
  throw new CaptureRefusedError('sandbox_changed', CHANGED, { cause: error });
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
