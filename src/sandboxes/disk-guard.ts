import { DISKS } from '../audit/events/actor.js';
import type { WorkerContext } from '../context.js';
import { isDiskFull } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import type { DiskPlace } from '../disk/disk-reserve.js';
import { lockSandbox, writableMounts } from './queries.js';
import { requestStop } from './stop.js';

const PLACES = ['engine', 'volumes'] as const;
const MIB = 1024 ** 2;
export const MIN_GROWTH_BYTES = 16 * MIB;
/** A look walks through all files of all sandboxes: until the disk is short it takes at most this share of the time. */
const LOOK_SHARE = 1 / 50;
const LOOK_EVERY_MS = 30_000;
const MEASURE_TIMEOUT_MS = 10_000;

interface Running {
  orgId: string;
  sandboxId: string;
}

interface Store {
  bytes: number;
  writers: Running[];
}

/**
 * Makes the pass that stops the sandboxes whose disks or volumes grow while only the reserve is left. Each pass stops one, by
 * its growth since there was room. Others stay: their stop would free nothing.
 */
export function makeDiskGuard(): (ctx: WorkerContext) => Promise<void> {
  let before: Map<string, number> | undefined;
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
    const stores = await look(ctx, places);
    const now = performance.now();
    nextLookAt = now + Math.max(LOOK_EVERY_MS, (now - begun) / LOOK_SHARE);
    if (!before || !isShort) {
      before = new Map([...stores].map(([name, { bytes }]) => [name, bytes]));
      return;
    }
    const most = mostGrown(stores, before);
    if (!most) return;
    before.set(most.name, most.bytes);
    const [writer] = most.writers;
    const message = 'a disk is full up to its reserve: stopping the sandbox that has grown most';
    ctx.log.warn({ ...writer, grownBytes: most.growth }, message);
    await stopWriter(ctx, writer!);
  };
}

/** The one that has grown most, of the organization whose stores together have grown most. */
export function mostGrown(
  stores: Map<string, Store>,
  before: Map<string, number>,
): (Store & { name: string; growth: number }) | undefined {
  const grown = [...stores]
    .map(([name, store]) => ({ name, ...store, growth: store.bytes - (before.get(name) ?? 0) }))
    .filter(({ growth }) => growth > 0)
    .toSorted((a, b) => b.growth - a.growth);
  const byOrg = new Map<string, number>();
  for (const { growth, writers } of grown) {
    const { orgId } = writers[0]!;
    byOrg.set(orgId, (byOrg.get(orgId) ?? 0) + growth);
  }
  const [most] = [...byOrg].toSorted((a, b) => b[1] - a[1]);
  if (!most || most[1] < MIN_GROWTH_BYTES) return undefined;
  return grown.find(({ writers }) => writers[0]!.orgId === most[0]);
}

async function look(ctx: WorkerContext, places: readonly DiskPlace[]): Promise<Map<string, Store>> {
  const held = await ctx.runtime.list();
  const running = new Map(held.filter(({ state }) => state === 'running').map((one) => [one.sandboxId, one]));
  const stores = new Map<string, Store>();
  if (places.includes('engine')) {
    const used = await ctx.runtime.diskUse();
    for (const [sandboxId, { orgId }] of running) {
      const bytes = used.get(sandboxId);
      if (bytes !== undefined) stores.set(sandboxId, { bytes, writers: [{ orgId, sandboxId }] });
    }
  }
  if (places.includes('volumes')) {
    for (const { orgId, sandboxId, volumeId } of await writableMounts(ctx.pool, ctx.runtime.engineId)) {
      if (!running.has(sandboxId)) continue;
      const known = stores.get(volumeId);
      if (known) {
        known.writers.push({ orgId, sandboxId });
        continue;
      }
      const limit = AbortSignal.timeout(MEASURE_TIMEOUT_MS);
      const kib = await ctx.volumes.measure(orgId, volumeId, limit).catch(() => undefined);
      if (kib !== undefined) stores.set(volumeId, { bytes: kib * 1024, writers: [{ orgId, sandboxId }] });
    }
  }
  return stores;
}

/** Without a grace period, in which it would write on. If the database cannot record it, the run ends all the same. */
async function stopWriter(ctx: WorkerContext, { orgId, sandboxId }: Running): Promise<void> {
  try {
    await inTransaction(ctx.pool, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId });
      if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return;
      await requestStop(tx, sandbox, DISKS, 'disk_full', ctx.now());
    });
  } catch (error) {
    if (!isDiskFull(error)) throw error;
    ctx.disk.noteFailure(error);
  }
  await ctx.runtime.stop(sandboxId, 0);
}
