import type Docker from 'dockerode';
import type { PullOptions } from '../../../engine/definition.js';
import type { HeldImage } from '../../../engine/images/held-images.js';
import { ImageRoom } from '../../../engine/images/image-room.js';
import {
  PulledImages,
  refusalOf,
  type ImageUser,
  type PullTarget,
} from '../../../engine/images/pulled-images.js';
import { StartRefusedError, type Run, type WantedImage } from '../../../engine/runtime.js';
import { PacedSteps } from '../../../fairness/paced-steps.js';
import { newId } from '../../../lib/uuid.js';
import { checkSize, verified } from '../../../registry/layer-check.js';
import { MAX_DOCUMENT_BYTES, MAX_VOLUMES } from '../../../registry/limits.js';
import { checkLayers, readConfig, type Descriptor } from '../../../registry/manifest.js';
import { requestPlatformManifest } from '../../../registry/manifest-requests.js';
import { imageConfigOf, type ImageConfig } from '../../../registry/image-config.js';
import { PullError } from '../../../registry/pull-error.js';
import type { Pull } from '../../../registry/pull.js';
import { readAll, type RegistrySession } from '../../../registry/registry-session.js';
import type { Step } from '../../../registry/step.js';
import type { ImageReference } from '../../../spec/image-reference.js';
import { ORG_LABEL } from '../container.js';
import { ignoreStatus, NOT_FOUND } from '../errors.js';
import { findSnapshotImage, listBases } from '../snapshots/snapshot-image.js';
import {
  findOperatorImage,
  findPulledImage,
  listPulled,
  pulledName,
  type EngineImage,
} from './engine-image.js';
import { imageShelf } from './image-shelf.js';
import { loadImage } from './load-image.js';

export class Images {
  private readonly pulled: PulledImages<EngineImage>;
  private readonly room: ImageRoom;
  private readonly steps = new PacedSteps();

  constructor(
    private readonly docker: Docker,
    /** In the words of Go. */
    readonly architecture: string,
    options: PullOptions | undefined,
  ) {
    this.room = new ImageRoom(imageShelf(docker), async (orgId) => this.listHeld(orgId), options);
    const keeper = {
      findOperators: async (reference: ImageReference) => findOperatorImage(docker, reference),
      find: async (target: Pick<PullTarget, 'digest' | 'tag'>, user: ImageUser) => this.find(target, user),
      pull: async (session: RegistrySession, target: PullTarget, pull: Pull) =>
        this.room.pull(async () => this.pull(session, target, pull)),
    };
    this.pulled = new PulledImages(keeper, options);
  }

  /** The image stays until `release`. Throws StartRefusedError, or the reason of the signal. */
  async ensure(run: Run, signal: AbortSignal): Promise<EngineImage> {
    const { snapshotId } = run.spec;
    if (snapshotId !== undefined) return this.snapshotOf(run.orgId, snapshotId);
    const { image, isOperators } = await this.pulled.ensure(run, signal);
    if (isOperators) return image;
    await this.room.claim(run, image).catch((error: unknown) => {
      throw error instanceof PullError ? refusalOf(run.spec.image, error) : error;
    });
    return image;
  }

  /** Undefined: a start would ask a registry, or the engine has just removed the image. */
  async atHand({
    orgId,
    ...wanted
  }: WantedImage): Promise<{ digest: string; config: ImageConfig } | undefined> {
    const user = { orgId, runId: newId() };
    try {
      const found = await this.pulled.findAtHand(user, wanted);
      const image = found && (await this.docker.getImage(found.id).inspect().catch(ignoreStatus(NOT_FOUND)));
      return found && image && { digest: found.digest, config: imageConfigOf(image.Config) };
    } finally {
      this.room.release(user);
    }
  }

  /** Asks the registry at each call, for a few seconds. Undefined: no tag, or no answer. */
  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return run.spec.snapshotId === undefined ? this.pulled.latestDigest(run, signal) : undefined;
  }

  private async snapshotOf(orgId: string, snapshotId: string): Promise<EngineImage> {
    const found = await findSnapshotImage(this.docker, { orgId, snapshotId });
    if (found) return found;
    throw new StartRefusedError(
      `the engine has no disk of the snapshot ${snapshotId} any more: create the sandbox from another one`,
    );
  }

  /** `makeRoom` may remove the image of a run from now on, unless a container has it. */
  release(run: Pick<Run, 'runId'>): void {
    this.room.release(run);
  }

  async makeRoom(): Promise<void> {
    await this.room.makeRoom();
  }

  private async find(
    { digest, tag }: Pick<PullTarget, 'digest' | 'tag'>,
    user: ImageUser,
  ): Promise<EngineImage | undefined> {
    this.room.keep(user, pulledName(tag));
    const found = await findPulledImage(this.docker, tag);
    return found && { ...found, digest };
  }

  private async pull(
    session: RegistrySession,
    { run: { orgId }, digest, tag }: PullTarget,
    pull: Pull,
  ): Promise<void> {
    const { architecture, room } = this;
    const { manifest } = await requestPlatformManifest(session, digest, architecture);
    checkLayers(manifest);
    const limit = await room.limitOf(orgId);
    checkSize(
      manifest.layers.reduce((sum, { size }) => sum + size, 0),
      limit,
    );
    const step: Step = async (work) => this.steps.once(orgId, work);
    const openBlob = async (blob: Pick<Descriptor, 'digest' | 'size'>) => {
      const { body } = await session.request(`blobs/${blob.digest}`);
      return verified(
        pull.count(body, (bytes) => room.take(bytes)),
        blob,
        step,
      );
    };
    const config = await readAll(await openBlob(manifest.config), MAX_DOCUMENT_BYTES);
    const diffIds = readConfig(config, manifest, architecture);
    const layers = manifest.layers.map((layer, index) => ({ ...layer, diffId: diffIds[index]! }));
    const content = { name: pulledName(tag), config, layers };
    await room.withBudget(limit, async (budget) => {
      const onSent = () => pull.pause();
      await loadImage(this.docker, content, { budget, openBlob, step, signal: pull.signal, onSent });
    });
    await this.checkVolumes(tag);
  }

  private async checkVolumes(tag: string): Promise<void> {
    const pulled = await findPulledImage(this.docker, tag);
    if (!pulled || pulled.volumes.length <= MAX_VOLUMES) return;
    // The engine merges the lists of a configuration that names a field twice.
    await this.docker.getImage(pulledName(tag)).remove();
    throw new PullError('too_many_parts', `${pulled.volumes.length} volumes`);
  }

  private async listHeld(orgId: string): Promise<HeldImage[]> {
    const containers = await this.docker.listContainers({
      all: true,
      filters: { label: [`${ORG_LABEL}=${orgId}`] },
    });
    const images = await listPulled(this.docker);
    const ids = new Set(containers.map(({ ImageID }) => ImageID));
    // A snapshot has the layers of the image below it, also when the image has lost its name.
    return [...images.filter(({ id }) => ids.has(id)), ...(await listBases(this.docker, orgId))];
  }
}
