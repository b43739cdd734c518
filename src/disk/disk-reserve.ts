import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isDiskFull } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { startLoop, type Loop } from '../lib/loop.js';
import { Ballast } from './ballast.js';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const REFRESH_EVERY_MS = 1_000;
/** The default reserve: this, or this share of a large file system, but at most the last share of a small one. */
export const DEFAULT_RESERVE = { bytes: GIB, share: 0.02, maxShare: 0.1 };
export const INODE_RESERVE = { share: 0.02, max: 10_000 };
const WAL_SEGMENT_BYTES = 16 * MIB;
const FAILURE_COUNTS_MS = 5_000;

const PLACES = {
  data: 'the disk of the data directory',
  volumes: 'the disk of the volumes',
  engine: 'the disk of the sandboxes',
} as const;
export type DiskPlace = keyof typeof PLACES;

export interface DiskRoom {
  place: DiskPlace;
  path: string;
  /** The number of the device: places on one disk share its room. */
  disk: number;
  sizeBytes: number;
  freeBytes: number;
  reserveBytes: number;
  freeInodes: number | null;
  reserveInodes: number;
}

const BALLAST = { bytes: 64 * MIB, shareOfReserve: 1 / 8 };
/** Sandboxes that fill the disk are stopped first. */
const RELEASE_AFTER_MS = 3_000;

interface Options {
  /** Undefined: the place is not on this machine, or not yet known. */
  pathOf: (place: DiskPlace) => string | undefined;
  reserveMib: number | undefined;
  hasOwnDatabase: boolean;
}

/** Keeps a part of each disk free, so that the database can write whatever callers and sandboxes store. */
export class DiskReserve {
  private readonly rooms = new Map<DiskPlace, DiskRoom>();
  private readonly takenSince = new Map<DiskPlace, number>();
  private failedAt = -Infinity;
  private fullSince: number | undefined;
  private refreshed = Promise.resolve();
  private loop: Loop | undefined;

  constructor(private readonly options: Options) {}

  async start(onError: (error: unknown) => void): Promise<void> {
    await this.refresh();
    this.loop = startLoop(() => this.refresh(), { intervalMs: REFRESH_EVERY_MS, onError });
  }

  async stop(): Promise<void> {
    await this.loop?.stop();
  }

  async refresh(): Promise<void> {
    this.refreshed = this.refreshed.catch(() => undefined).then(async () => this.measureAll());
    return this.refreshed;
  }

  private async measureAll(): Promise<void> {
    for (const place of Object.keys(PLACES) as DiskPlace[]) {
      const before = this.takenSince.get(place) ?? 0;
      const room = await this.look(place);
      if (room) this.rooms.set(place, room);
      else this.rooms.delete(place);
      // The measurement may already show what was given back meanwhile.
      this.takenSince.set(place, Math.max(0, (this.takenSince.get(place) ?? 0) - before));
    }
    if (this.options.hasOwnDatabase) await this.trimBallast();
  }

  private async trimBallast(): Promise<void> {
    const data = this.rooms.get('data');
    if (!data || data.reserveBytes === 0) return;
    const bytes = Math.min(BALLAST.bytes, data.reserveBytes * BALLAST.shareOfReserve);
    const ballast = new Ballast(join(data.path, 'ballast'), bytes);
    if (!this.isDatabaseFull) {
      this.fullSince = undefined;
      if (data.freeBytes > data.reserveBytes + 2 * bytes && !(await ballast.isHeld())) await ballast.hold();
      return;
    }
    this.fullSince ??= performance.now();
    if (performance.now() - this.fullSince >= RELEASE_AFTER_MS) await ballast.release();
  }

  /** Throws `storage_full` if `bytes` more would touch the reserve of a place. */
  check(place: DiskPlace, bytes = 0): void {
    const room = this.rooms.get(place);
    if (!room || !isShort(room, (this.takenSince.get(place) ?? 0) + bytes)) return;
    throw new ApiError(
      'storage_full',
      `${PLACES[place]} is full up to its reserve: remove what is no longer needed, or ask the operator to make room`,
      null,
      { headers: { 'retry-after': '30' } },
    );
  }

  checkAll(): void {
    for (const place of this.rooms.keys()) this.check(place);
  }

  take(place: DiskPlace, bytes: number): void {
    this.check(place, bytes);
    this.addTaken(place, bytes);
  }

  /** For bytes that were taken, and are not on the disk any more. */
  giveBack(place: DiskPlace, bytes: number): void {
    this.addTaken(place, -bytes);
  }

  private addTaken(place: DiskPlace, bytes: number): void {
    this.takenSince.set(place, (this.takenSince.get(place) ?? 0) + bytes);
  }

  /** The room at this moment. Undefined: the place is not on this machine. */
  async look(place: DiskPlace): Promise<DiskRoom | undefined> {
    const path = this.options.pathOf(place);
    return path === undefined ? undefined : measure(place, path, this.options.reserveMib);
  }

  /** The room a short time ago. */
  room(place: DiskPlace): DiskRoom | undefined {
    return this.rooms.get(place);
  }

  isShort(place: DiskPlace): boolean {
    const room = this.rooms.get(place);
    return room !== undefined && isShort(room, 0);
  }

  isNear(place: DiskPlace): boolean {
    const room = this.rooms.get(place);
    return room !== undefined && isShort(room, room.reserveBytes);
  }

  /** Whether `bytes` more leave twice the reserve, at this moment. */
  async hasRoom(place: DiskPlace, bytes = 0): Promise<boolean> {
    const room = await this.look(place);
    return room === undefined || !isShort(room, room.reserveBytes + bytes);
  }

  measured(): DiskRoom[] {
    return [...this.rooms.values()];
  }

  warnings(): string[] {
    return [...this.rooms.keys()]
      .filter((place) => this.isShort(place))
      .map((place) => `${PLACES[place]} is full up to its reserve`);
  }

  noteFailure(error: unknown): void {
    if (isDiskFull(error)) this.failedAt = performance.now();
  }

  get isDatabaseFull(): boolean {
    if (performance.now() - this.failedAt < FAILURE_COUNTS_MS) return true;
    const data = this.rooms.get('data');
    return this.options.hasOwnDatabase && data !== undefined && data.freeBytes < WAL_SEGMENT_BYTES;
  }
}

export const UNCHECKED_DISKS = new DiskReserve({
  pathOf: () => undefined,
  reserveMib: 0,
  hasOwnDatabase: false,
});

function isShort(room: DiskRoom, more: number): boolean {
  if (room.reserveBytes > 0 && room.freeBytes - more < room.reserveBytes) return true;
  return room.freeInodes !== null && room.freeInodes < room.reserveInodes;
}

export async function measure(
  place: DiskPlace,
  path: string,
  reserveMib: number | undefined,
): Promise<DiskRoom | undefined> {
  const looked = await Promise.all([statfs(path), stat(path)]).catch(() => undefined);
  if (!looked) return undefined;
  const [found, { dev: disk }] = looked;
  const size = found.blocks * found.bsize;
  const { bytes, share, maxShare } = DEFAULT_RESERVE;
  const standard = Math.min(Math.max(bytes, size * share), size * maxShare);
  const isOff = reserveMib === 0;
  return {
    place,
    path,
    disk,
    sizeBytes: size,
    freeBytes: found.bavail * found.bsize,
    reserveBytes: reserveMib === undefined ? Math.floor(standard) : reserveMib * MIB,
    freeInodes: found.files === 0 ? null : found.ffree,
    reserveInodes: isOff ? 0 : Math.min(Math.floor(found.files * INODE_RESERVE.share), INODE_RESERVE.max),
  };
}
