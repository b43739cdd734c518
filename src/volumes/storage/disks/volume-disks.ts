import { constants } from 'node:fs';
import { open, statfs, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { SlotQueue } from '../../../fairness/slot-queue.js';
import { mountsBelow } from '../../../lib/mount-table.js';
import { ignoreMissing } from '../guest-path.js';
import {
  attachedImages,
  detachImage,
  growImage,
  hasNoFiles,
  imageGib,
  isGrowing,
  isMounted,
  MAKING_POINT,
  makeImage,
  MOUNT_POINT,
  mountImage,
  removeCopied,
  unmountImage,
} from './disk-image.js';
import { withDiskLock } from './disk-lock.js';
import { explainDiskFailure, VolumeDiskError } from './errors.js';
import { isLocalFileSystem } from './local-file-system.js';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

/** Each holds a loop device and a thread of the kernel. Those of sandboxes count. */
const MOUNTED_DISKS = { total: 1_024, each: 256 };
/** Programs that make, mount and unmount disks, for a moment. */
const WORK = { total: 4, each: 2 };
/**
 * Copies of directories to disks, and growth: they take as long as the volume is large, and must not keep mounts
 * waiting.
 */
const LONG_WORK = { total: 2, each: 1 };
const IDLE_MS = 30_000;
const SWEEP_MS = 15_000;
const REMEMBERED = 10_000;
/** Where the service may not let a disk grow while sandboxes have it mounted. */
const GROWTH_RETRY_MS = 15_000;

/**
 * The disks of volumes with a cap: each is an image with a file system in the directory of its volume. A disk is
 * mounted here while somebody uses it, and for a while longer. Sandboxes have mounts of their own, which keep its loop
 * device.
 */
export class VolumeDisks {
  private readonly usedAt = new Map<string, number>();
  private readonly opening = new Map<string, Promise<void>>();
  private readonly work = new SlotQueue(WORK);
  private readonly longWork = new SlotQueue(LONG_WORK);
  /** The sizes in GiB that images have at least: they never shrink. */
  private readonly sizes = new Map<string, { gib: number; grown: boolean; retryAt: number }>();
  private timer: NodeJS.Timeout | undefined;
  private sweeping: Promise<void> | undefined;

  constructor(private readonly root: string) {}

  /** Takes over the mounts that a process left. */
  async adopt(): Promise<void> {
    if (process.platform !== 'linux') return;
    for (const { point } of await mountsBelow(this.root)) {
      const volume = dirname(point);
      if (basename(point) === MOUNT_POINT) this.noteUse(volume);
      if (basename(point) !== MAKING_POINT) continue;
      // Its maker may be at work in another process, which has the lock then.
      await this.locked(volume, this.work, (lock) => detachImage(volume, lock, MAKING_POINT)).catch(
        () => undefined,
      );
    }
  }

  /**
   * The directory of the mounted disk, open, which keeps the mount. Undefined: the volume has no disk. The caller
   * closes it.
   */
  async open(volume: string, name: string): Promise<FileHandle | undefined> {
    for (let round = 0; ; round += 1) {
      const found = await this.openMounted(volume, name);
      if (found) return found;
      if ((await imageGib(volume)) === undefined) return undefined;
      if (round === ROUNDS) throw explainDiskFailure(new Error('the disk is unmounted again and again'));
      await this.mount(volume);
    }
  }

  async gibOf(volume: string): Promise<number | undefined> {
    return imageGib(volume);
  }

  /**
   * Makes the disk of a volume, or lets it grow. The directory of the volume exists. `isStart`: a growth that failed
   * lately is tried again. `signal` gives the first copy up, and the wait for it. Throws VolumeDiskError.
   */
  async hold(
    volume: string,
    capGib: number,
    { isStart, signal }: { isStart: boolean; signal?: AbortSignal | undefined },
  ): Promise<void> {
    const known = this.sizes.get(volume);
    if (known && known.gib >= capGib && (known.grown || (!isStart && performance.now() < known.retryAt)))
      return;
    let grown = true;
    if (!(await isLargeEnough(volume, capGib))) {
      const isQuick = (await imageGib(volume)) === undefined && (await hasNoFiles(volume));
      const slots = isQuick ? this.work : this.longWork;
      const work = async (lock: FileHandle) => {
        if ((await imageGib(volume)) === undefined) {
          await refuseShared(volume);
          await this.makeRoom(volume);
          await makeImage(volume, capGib, lock, signal);
        }
        await removeCopied(volume, lock);
        if (!(await isLargeEnough(volume, capGib))) grown = await growImage(volume, capGib, lock);
      };
      await this.locked(volume, slots, work, signal);
    }
    if (this.sizes.size >= REMEMBERED) this.sizes.clear();
    this.sizes.set(volume, { gib: capGib, grown, retryAt: performance.now() + GROWTH_RETRY_MS });
  }

  /** In KiB. Undefined: the volume has no disk. */
  async usedKib(volume: string, name: string): Promise<number | undefined> {
    const wasMounted = this.usedAt.has(volume);
    const top = await this.open(volume, name);
    if (!top) return undefined;
    try {
      const { blocks, bfree, bsize } = await statfs(`/proc/self/fd/${top.fd}`);
      return Math.ceil(((blocks - bfree) * bsize) / 1024);
    } finally {
      await top.close();
      // A look at every volume must not take a loop device for each.
      if (!wasMounted) await this.unmount(volume);
    }
  }

  /** Before the directory of the volume is removed. */
  async detach(volume: string): Promise<void> {
    this.usedAt.delete(volume);
    this.sizes.delete(volume);
    if ((await mountsBelow(volume)).length === 0) return;
    await this.locked(volume, this.work, async (lock) => {
      await detachImage(volume, lock, MOUNT_POINT);
      await detachImage(volume, lock, MAKING_POINT);
    });
  }

  async close(): Promise<void> {
    clearInterval(this.timer);
    this.timer = undefined;
    await this.sweeping;
    await this.sweep(0);
  }

  private async openMounted(volume: string, name: string): Promise<FileHandle | undefined> {
    const path = join(volume, MOUNT_POINT, name);
    const found = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(ignoreMissing);
    if (found) this.noteUse(volume);
    return found;
  }

  private async mount(volume: string): Promise<void> {
    const begun =
      this.opening.get(volume) ?? this.locked(volume, this.work, (lock) => this.mountLocked(volume, lock));
    this.opening.set(volume, begun);
    await begun.finally(() => this.opening.delete(volume));
  }

  private async mountLocked(volume: string, lock: FileHandle): Promise<void> {
    if (await isMounted(volume)) return;
    await refuseShared(volume);
    await this.makeRoom(volume);
    await mountImage(volume, lock);
    await removeCopied(volume, lock);
    this.noteUse(volume);
  }

  /** Throws VolumeDiskError. */
  private async makeRoom(volume: string): Promise<void> {
    if (this.hasRoom(volume, await this.attached())) return;
    await this.sweep(0, volume);
    if (this.hasRoom(volume, await this.attached())) return;
    throw new VolumeDiskError(
      'no_room',
      `too many volumes with a cap are mounted: at most ${MOUNTED_DISKS.each} of an organization and ${MOUNTED_DISKS.total} in all; stop a sandbox that mounts one`,
    );
  }

  private hasRoom(volume: string, attached: readonly string[]): boolean {
    const ofOrg = attached.filter((image) => image.startsWith(`${dirname(volume)}/`));
    return attached.length < MOUNTED_DISKS.total && ofOrg.length < MOUNTED_DISKS.each;
  }

  private async attached(): Promise<string[]> {
    return (await attachedImages()).filter((image) => image.startsWith(`${this.root}/`));
  }

  private noteUse(volume: string): void {
    this.usedAt.set(volume, performance.now());
    this.timer ??= setInterval(() => {
      this.sweeping ??= this.sweep(IDLE_MS).finally(() => (this.sweeping = undefined));
    }, SWEEP_MS).unref();
  }

  private async sweep(idleMs: number, except?: string): Promise<void> {
    for (const [volume, at] of this.usedAt) {
      if (volume !== except && performance.now() - at >= idleMs) await this.unmount(volume);
    }
    if (this.usedAt.size > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
  }

  /** Unless something has a file of it open. */
  private async unmount(volume: string): Promise<void> {
    try {
      // Neither a slot nor a wait: a mount that has a slot and a lock may wait for this.
      await withDiskLock(volume, (lock) => unmountImage(volume, lock), { waits: false });
      this.usedAt.delete(volume);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') this.usedAt.delete(volume);
    }
  }

  private async locked(
    volume: string,
    slots: SlotQueue,
    work: (lock: FileHandle) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<void> {
    const run = async () =>
      withDiskLock(volume, work, { signal }).catch((error: unknown) => {
        throw explainDiskFailure(error);
      });
    await slots.run(dirname(volume), run, signal);
  }
}

async function isLargeEnough(volume: string, capGib: number): Promise<boolean> {
  const gib = await imageGib(volume);
  return gib !== undefined && gib >= capGib && !(await isGrowing(volume));
}

async function refuseShared(volume: string): Promise<void> {
  if (await isLocalFileSystem(volume)) return;
  throw new VolumeDiskError(
    'unavailable',
    'the disk of the volume is on a file system that other machines may share, where two of them could destroy it',
  );
}

/** Another process may unmount an idle disk between the mount and the use. */
const ROUNDS = 5;
