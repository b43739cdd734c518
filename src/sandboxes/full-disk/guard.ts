import { DISKS } from '../../audit/events/actor.js';
import type { WorkerContext } from '../../context.js';
import { isDiskFull } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { DiskPlace } from '../../disk/disk-reserve.js';
import type { RemovedBytes } from '../../engine/removed-files.js';
import { sleep } from '../../lib/sleep.js';
import { mostGrown } from './growth.js';
import { measureAll, type Measurable } from './survey.js';
import { lockSandbox, writableMounts } from '../queries.js';
import { requestStop } from '../lifecycle/stop.js';

const PLACES = ['engine', 'volumes'] as const;
/** A look walks through all files of all sandboxes: until the disk is short it takes at most this share of the time. */
const LOOK_SHARE = 1 / 50;
const LOOK_EVERY_MS = 30_000;
const STOPS_WITHIN_MS = 10_000;

interface Running {
  orgId: string;
  sandboxId: string;
}

interface WrittenStore extends Measurable {
  disk: number;
  writer: Running;
}

interface Sizes {
  ofStores: Map<string, number>;
  /** The free bytes of each disk. */
  free: Map<number, number>;
}

/**
 * Makes the pass that stops the sandboxes whose disks or volumes grow while only the reserve is left. Each pass stops
 * one, by its growth since there was room. Others stay: their stop would free nothing.
 */
export function makeDiskGuard(): (ctx: WorkerContext) => Promise<void> {
  let before: Sizes | undefined;
  let nextLookAt = 0;

  return async (ctx) => {
    const places = PLACES.filter((place) => ctx.disk.isNear(place));
    if (places.length === 0) {
      before = undefined;
      return;
    }
    const isShort = places.some((place) => ctx.disk.isShort(place));
    if (before && !isShort && performance.now() < nextLookAt) return;
    const begun = performance.now();
    if (places.includes('engine')) {
      await ctx.runtime
        .makeRoom()
        .catch((error: unknown) => ctx.log.warn({ err: error }, 'unused images cannot be removed'));
    }
    const free = await freeOf(ctx, places);
    const stores = await findStores(ctx, places);
    const now = { ofStores: await measureAll(stores), free };
    nextLookAt = performance.now() + Math.max(LOOK_EVERY_MS, (performance.now() - begun) / LOOK_SHARE);
    if (!before || !isShort) {
      before = now;
      return;
    }
    const most = mostGrown(...compare(stores, before, now));
    if (!most) return;
    if (most.bytes !== undefined) before.ofStores.set(most.name, most.bytes);
    before.free.set(most.disk, (before.free.get(most.disk) ?? 0) - most.growth);
    const message = 'a disk is full up to its reserve: stopping the sandbox that has grown most';
    ctx.log.warn({ ...most.writer, grownBytes: most.growth }, message);
    await stopWriter(ctx, most.writer);
  };
}

function compare(stores: readonly WrittenStore[], before: Sizes, now: Sizes) {
  const sized = stores.map((store) => ({
    ...store,
    before: before.ofStores.get(store.name),
    bytes: now.ofStores.get(store.name),
  }));
  const lost = new Map(
    [...now.free].map(([disk, bytes]) => [disk, (before.free.get(disk) ?? bytes) - bytes]),
  );
  return [sized, lost] as const;
}

async function freeOf(ctx: WorkerContext, places: readonly DiskPlace[]): Promise<Map<number, number>> {
  const rooms = await Promise.all(places.map((place) => ctx.disk.look(place)));
  return new Map(rooms.flatMap((room) => (room ? [[room.disk, room.freeBytes] as const] : [])));
}

async function findStores(ctx: WorkerContext, places: readonly DiskPlace[]): Promise<WrittenStore[]> {
  const held = await ctx.runtime.list();
  const running = new Map(held.filter(({ state }) => state === 'running').map((one) => [one.sandboxId, one]));
  const stores: WrittenStore[] = [];
  const diskOf = (place: DiskPlace) => ctx.disk.room(place)?.disk ?? 0;
  if (places.includes('engine')) {
    for (const [sandboxId, { orgId }] of running) {
      const measure = async () => ctx.runtime.diskUse(sandboxId);
      stores.push({
        name: sandboxId,
        orgId,
        disk: diskOf('engine'),
        writer: { orgId, sandboxId },
        measure,
      });
    }
  }
  if (places.includes('volumes')) {
    const known = new Set<string>();
    for (const { orgId, sandboxId, volumeId } of await writableMounts(ctx.pool, ctx.runtime.engineId)) {
      if (!running.has(sandboxId) || known.has(volumeId)) continue;
      known.add(volumeId);
      const measure = async (signal: AbortSignal) =>
        ((await ctx.volumes.measure(orgId, volumeId, signal)) ?? 0) * 1024;
      stores.push({
        name: volumeId,
        orgId,
        disk: diskOf('volumes'),
        writer: { orgId, sandboxId },
        measure,
      });
    }
  }
  // After the others, because a sandbox with many open files takes long.
  for (const [sandboxId, { orgId }] of running) {
    let begun: Promise<RemovedBytes | undefined> | undefined;
    const look = async (signal: AbortSignal) => {
      begun ??= Promise.resolve(ctx.runtime.removedBytes?.(sandboxId, signal)).finally(
        () => (begun = undefined),
      );
      return begun;
    };
    for (const disk of new Set(places.map(diskOf))) {
      const measure = async (signal: AbortSignal) => {
        const removed = await look(signal);
        // Where nobody can tell, no sandbox is suspected: the machine has files of its own.
        if (!removed) return 0;
        return (disk === diskOf('engine') ? removed.own : 0) + (removed.onDisks.get(disk) ?? 0);
      };
      stores.push({ name: `${sandboxId} ${disk}`, orgId, disk, writer: { orgId, sandboxId }, measure });
    }
  }
  return stores;
}

/** Without a grace period, in which it would write on. If the database cannot record it, the run ends all the same. */
async function stopWriter(ctx: WorkerContext, { orgId, sandboxId }: Running): Promise<void> {
  try {
    await inTransaction(ctx.pool, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId, orWarm: true });
      if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return;
      await requestStop(tx, sandbox, DISKS, 'disk_full', ctx.now());
    });
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    ctx.disk.noteFailure(error);
  }
  // An engine may wait for room on the disk. Meanwhile others write, and the next pass stops them.
  const over = new AbortController();
  try {
    await Promise.race([ctx.runtime.stop(sandboxId, 0), sleep(STOPS_WITHIN_MS, over.signal)]);
  } finally {
    over.abort();
  }
}
