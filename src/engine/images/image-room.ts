import { ImageBudget, type SizeLimit } from '../../registry/layer-check.js';
import { SHARE_OF_ORG } from '../../registry/limits.js';
import { PullError } from '../../registry/pull-error.js';
import type { PullOptions } from '../definition.js';
import { HeldImages, type HeldImage } from './held-images.js';
import type { ImageUser } from './pulled-images.js';
import { UnusedImages, type ImageShelf } from './unused-images.js';

const MIB = 1_024 * 1_024;

/** The room that pulled images take: on the disk of the engine, and for each organization. */
export class ImageRoom {
  /** The names of the images that each start needs before its sandbox has them. */
  private readonly neededBy = new Map<string, Set<string>>();
  private readonly unused: UnusedImages;
  private readonly held: HeldImages;
  /** The engine writes these later, when it has the archives of the current pulls. */
  private unpackedBytes = 0;

  constructor(
    shelf: ImageShelf,
    listHeld: (orgId: string) => Promise<HeldImage[]>,
    private readonly options: Pick<PullOptions, 'maxMib' | 'maxMibOfOrg' | 'disk'> | undefined,
  ) {
    this.unused = new UnusedImages(shelf);
    this.held = new HeldImages(listHeld, () => this.maxBytesOfOrg());
  }

  /** The image stays until `release`. */
  keep({ orgId, runId }: ImageUser, name: string): void {
    this.neededBy.set(runId, (this.neededBy.get(runId) ?? new Set()).add(name));
    this.unused.noteUse(name, orgId);
  }

  /** Throws PullError if the image is too much for the organization. */
  async claim(run: ImageUser, image: HeldImage): Promise<void> {
    await this.held.claim(run, image);
  }

  /** `makeRoom` may remove the image of a run from now on, unless a sandbox has it. */
  release({ runId }: Pick<ImageUser, 'runId'>): void {
    this.neededBy.delete(runId);
    this.held.release(runId);
  }

  async makeRoom(): Promise<void> {
    await this.removeUnused(0);
  }

  /** A pull without room begins again when unused images could be removed. Throws PullError. */
  async pull(work: () => Promise<void>): Promise<void> {
    const { maxMib, disk } = this.options!;
    const removedBefore = this.unused.removed;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof PullError) || error.failure !== 'no_space') throw error;
      // The disk has the layers of an image and their content at once.
      await this.removeUnused(2 * maxMib * MIB);
      // The disk guard may have removed some during the pull.
      if (this.unused.removed === removedBefore) throw error;
      await disk.refresh();
      await work();
    }
  }

  async limitOf(orgId: string): Promise<SizeLimit> {
    const most = this.options!.maxMib * MIB;
    const room = await this.held.roomOf(orgId);
    return room < most ? { bytes: room, beyond: 'too_many_images' } : { bytes: most, beyond: 'too_large' };
  }

  /** Throws PullError if the disk has no room for as much more. */
  take(bytes: number): void {
    inRoom(() => this.options!.disk.take('engine', bytes));
  }

  /** The budget counts what is unpacked, and keeps the room for it until the end of the work. */
  async withBudget<T>(limit: SizeLimit, work: (budget: ImageBudget) => Promise<T>): Promise<T> {
    let unpackedBytes = 0;
    const budget = new ImageBudget(limit, (bytes) => {
      unpackedBytes += bytes;
      this.unpackedBytes += bytes;
      inRoom(() => this.options!.disk.check('engine', this.unpackedBytes));
    });
    try {
      return await work(budget);
    } finally {
      this.unpackedBytes -= unpackedBytes;
    }
  }

  private async removeUnused(bytes: number): Promise<void> {
    const disk = this.options?.disk;
    if (!disk) return;
    const isNeeded = (name: string) => [...this.neededBy.values()].some((names) => names.has(name));
    await this.unused.remove(isNeeded, async () => disk.hasRoom('engine', bytes));
  }

  private maxBytesOfOrg(): number {
    const { maxMibOfOrg, disk } = this.options ?? {};
    if (maxMibOfOrg !== undefined) return maxMibOfOrg * MIB;
    return (disk?.room('engine')?.sizeBytes ?? Infinity) * SHARE_OF_ORG;
  }
}

function inRoom(check: () => void): void {
  try {
    check();
  } catch (cause) {
    throw new PullError('no_space', 'the disk is full up to its reserve', { cause });
  }
}
