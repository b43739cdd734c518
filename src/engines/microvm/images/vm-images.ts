import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { PullOptions } from '../../../engine/definition.js';
import type { HeldImage } from '../../../engine/images/held-images.js';
import { ImageRoom } from '../../../engine/images/image-room.js';
import {
  PulledImages,
  refusalOf,
  type ImageUser,
  type PullTarget,
} from '../../../engine/images/pulled-images.js';
import type { KeptImage } from '../../../engine/images/unused-images.js';
import { StartRefusedError, type Run, type WantedImage } from '../../../engine/runtime.js';
import { PacedSteps } from '../../../fairness/paced-steps.js';
import { SlotQueue } from '../../../fairness/slot-queue.js';
import { newId } from '../../../lib/uuid.js';
import { readImageConfig, type ImageConfig } from '../../../registry/image-config.js';
import { checkSize, ImageBudget, verified } from '../../../registry/layer-check.js';
import { MAX_DOCUMENT_BYTES } from '../../../registry/limits.js';
import { checkLayers, readConfig } from '../../../registry/manifest.js';
import { requestPlatformManifest } from '../../../registry/manifest-requests.js';
import { PullError } from '../../../registry/pull-error.js';
import type { Pull } from '../../../registry/pull.js';
import { readAll, type RegistrySession } from '../../../registry/registry-session.js';
import type { Step } from '../../../registry/step.js';
import type { ImageReference } from '../../../spec/image-reference.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { BASE_FILE } from './build-base.js';
import { ImageNames } from './image-names.js';
import type { ImageStore, StoredImage } from './image-store.js';
import { proveLayers, pullBase, type LayerSource } from './pull-base.js';
import { PulledTags } from './pulled-tags.js';

/** Bases that are made at once. Each takes a part of a processor, and memory for its tree. */
export const BASES = { total: 2, each: 1 };

export interface VmImage {
  /** As the registry names the image; that of the configuration, where no registry does. */
  digest: string;
  stored: StoredImage;
}

export interface VmImagesOptions {
  store: ImageStore;
  /** The directory with those of the sandboxes, each of which has a link to its base. */
  sandboxes: string;
  orgOf: (sandboxId: string) => Promise<string | undefined>;
  /** The links of the snapshots of an organization to their bases. */
  snapshotBases: (orgId: string) => Promise<string[]>;
  architecture: string;
  /** Undefined: no image is pulled. */
  pulls: PullOptions | undefined;
}

/** Gives images to microVMs: those of the operator by name, and others after a proof of access. */
export class VmImages {
  private readonly store: ImageStore;
  private readonly names: ImageNames;
  private readonly tags: PulledTags;
  private readonly pulled: PulledImages<VmImage>;
  private readonly room: ImageRoom;
  private readonly steps = new PacedSteps();
  /** Also of those that imports of snapshots make. */
  readonly turns = new SlotQueue(BASES);

  constructor(private readonly options: VmImagesOptions) {
    const { store, pulls } = options;
    this.store = store;
    this.names = new ImageNames(store.root);
    this.tags = new PulledTags(store.root);
    const shelf = {
      list: async () => this.listKept(),
      remove: async (digest: string) => this.remove(digest),
    };
    this.room = new ImageRoom(shelf, async (orgId) => this.listHeld(orgId), pulls);
    const keeper = {
      findOperators: async (reference: ImageReference) => this.findOperators(reference),
      find: async (target: Pick<PullTarget, 'digest' | 'tag'>, user: ImageUser) => this.find(target, user),
      pull: async (session: RegistrySession, target: PullTarget, pull: Pull) =>
        this.room.pull(async () => this.pull(session, target, pull)),
    };
    this.pulled = new PulledImages(keeper, pulls);
  }

  /**
   * The image stays until `release`, and its base has the bytes of its record. Throws StartRefusedError, or the reason
   * of the signal.
   */
  async ensure(run: Run, signal: AbortSignal): Promise<VmImage> {
    const first = await this.pulled.ensure(run, signal);
    if (await this.isIntact(run, first.image, signal)) return this.claimed(run, first);
    const { image } = run.spec;
    if (first.isOperators) {
      const words = `the image ${image} is damaged on this machine: the operator must import it again`;
      throw new StartRefusedError(words);
    }
    await this.remove(first.image.stored.digest);
    const second = await this.pulled.ensure(run, signal);
    if (await this.isIntact(run, second.image, signal)) return this.claimed(run, second);
    throw new Error(`the base of ${image} is damaged again: the disk of the images loses data`);
  }

  private async isIntact({ orgId }: Run, { stored }: VmImage, signal: AbortSignal): Promise<boolean> {
    return this.store.isIntact(stored, this.stepOf(orgId), signal);
  }

  private async claimed(
    run: Run,
    { image, isOperators }: { image: VmImage; isOperators: boolean },
  ): Promise<VmImage> {
    if (isOperators) return image;
    const { digest, base } = image.stored;
    await this.room.claim(run, { id: digest, bytes: base.bytes }).catch((error: unknown) => {
      throw error instanceof PullError ? refusalOf(run.spec.image, error) : error;
    });
    return image;
  }

  /** Undefined: a start would ask a registry. */
  async atHand({
    orgId,
    ...wanted
  }: WantedImage): Promise<{ digest: string; config: ImageConfig } | undefined> {
    const user = { orgId, runId: newId() };
    try {
      const found = await this.pulled.findAtHand(user, wanted);
      return found && { digest: found.digest, config: found.stored.config };
    } finally {
      this.release(user);
    }
  }

  /** Asks the registry at each call, for a few seconds. Undefined: no tag, or no answer. */
  async latestDigest(run: Run, signal: AbortSignal): Promise<string | undefined> {
    return this.pulled.latestDigest(run, signal);
  }

  /** `makeRoom` may remove the image of a run from now on, unless a sandbox has its base. */
  release(run: Pick<Run, 'runId'>): void {
    this.room.release(run);
  }

  async makeRoom(): Promise<void> {
    await this.room.makeRoom();
  }

  /** Removes what killed processes left. */
  async removeLeftovers(): Promise<void> {
    await this.store.removeLeftovers();
  }

  private async findOperators(reference: ImageReference): Promise<VmImage | undefined> {
    const name = await this.names.find(reference);
    const stored = name && (await this.store.find(name.digest));
    return stored && { digest: stored.digest, stored };
  }

  private async find(
    { digest, tag }: Pick<PullTarget, 'digest' | 'tag'>,
    user: ImageUser,
  ): Promise<VmImage | undefined> {
    const id = await this.tags.find(tag);
    if (id === undefined) return undefined;
    this.room.keep(user, id);
    const stored = await this.store.find(id);
    return stored && { digest, stored };
  }

  private async pull(session: RegistrySession, { run, digest, tag }: PullTarget, pull: Pull): Promise<void> {
    const { room, store } = this;
    const { architecture } = this.options;
    const { manifest } = await requestPlatformManifest(session, digest, architecture);
    checkLayers(manifest, { zstd: true });
    const limit = await room.limitOf(run.orgId);
    checkSize(
      manifest.layers.reduce((sum, { size }) => sum + size, 0),
      limit,
    );
    const step = this.stepOf(run.orgId);
    const openBlob = async (blob: string, onBytes: (bytes: number) => void = () => undefined) =>
      pull.count((await session.request(`blobs/${blob}`)).body, onBytes);
    const config = await readAll(
      verified(await openBlob(manifest.config.digest), manifest.config, step),
      MAX_DOCUMENT_BYTES,
    );
    const programs = readImageConfig(config);
    const diffIds = readConfig(config, manifest, architecture);
    const layers = manifest.layers.map((layer, index) => ({ ...layer, diffId: diffIds[index]! }));
    const id = manifest.config.digest;
    room.keep(run, id);
    const source = { layers, step, pull };
    if (await store.find(id)) {
      // Another repository may only name what it does not have.
      const budget = new ImageBudget(limit, () => undefined);
      await proveLayers({ ...source, budget, openBlob: async (blob) => openBlob(blob) });
    } else {
      const take = (bytes: number) => room.take(bytes);
      const budget = new ImageBudget(limit, take);
      await this.add(id, programs, { ...source, budget, openBlob: async (blob) => openBlob(blob, take) });
    }
    await this.tags.set(tag, id);
  }

  private async add(id: string, programs: ReturnType<typeof readImageConfig>, source: LayerSource) {
    try {
      await this.store.add(id, programs, async (directory) => pullBase(directory, source, this.turns));
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'ENOSPC') throw cause;
      throw new PullError('no_space', 'the disk has no room for the image', { cause });
    }
  }

  private async remove(digest: string): Promise<void> {
    await this.tags.remove(digest);
    await this.store.remove(digest);
  }

  /** Images with a name are the operator's, and stay. */
  private async listKept(): Promise<KeptImage[]> {
    const named = await this.namedDigests();
    return (await this.store.list())
      .filter(({ digest }) => !named.has(digest))
      .map(({ digest, base, uses }) => ({
        names: [digest],
        bytes: base.bytes,
        isInUse: uses > 0,
      }));
  }

  private async listHeld(orgId: string): Promise<HeldImage[]> {
    const { sandboxes, orgOf, snapshotBases } = this.options;
    const named = await this.namedDigests();
    const images = new Map((await this.store.list()).map(({ inode, digest }) => [inode, digest]));
    const held = new Map<string, number>();
    const bases = await snapshotBases(orgId);
    for (const sandboxId of (await readdir(sandboxes).catch(ignoreMissing)) ?? [])
      if ((await orgOf(sandboxId)) === orgId) bases.push(join(sandboxes, sandboxId, BASE_FILE));
    for (const file of bases) {
      const base = await lstat(file).catch(ignoreMissing);
      if (!base) continue;
      // The base of a removed image still takes its room.
      const id = images.get(base.ino) ?? `inode ${base.ino}`;
      if (!named.has(id)) held.set(id, base.size);
    }
    return [...held].map(([id, bytes]) => ({ id, bytes }));
  }

  private async namedDigests(): Promise<Set<string>> {
    return new Set((await this.names.list()).map(({ digest }) => digest));
  }

  private stepOf(orgId: string): Step {
    return async (work) => this.steps.once(orgId, work);
  }
}
