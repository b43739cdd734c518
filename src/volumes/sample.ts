import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { Admission } from '../fairness/share-entry.js';
import { Shares } from '../fairness/shares.js';
import { addMillis } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { claimUnsampled, insertReading, organizationsDue, setSampled } from './accrual-queries.js';
import { measureVolume } from './engine-storage.js';
import { lockVolume } from './queries.js';

/** Readings, each of which is charged its time at its end. Those at once are of different organizations. */
const READINGS = {
  running: { total: 4, each: 1 },
  waiting: { total: Infinity, each: Infinity },
  maxWaitMs: Infinity,
  maxHoldMs: Infinity,
};
/** The next reading may be late or fail. */
export const VALID_INTERVALS = 2;
const TRIES_PER_INTERVAL = 6;
/** Enough for millions of files. */
const MAX_READING_MS = 5 * 60_000;
const POLL_MS = 1_000;

/** Claims expire after a part of an interval, so that interrupted and failed readings are retried. */
export async function sampleVolumes(ctx: Context, signal: AbortSignal): Promise<void> {
  const shares = new Shares(READINGS);
  const busy = new Map<string, Promise<void>>();
  let isEnding = false;

  const enter = async (orgId: string) =>
    new Promise<Admission>((resolve) => void shares.enter(orgId, 1, resolve));

  /** An organization whose reading failed stays busy, so that the next wait throws the error. */
  async function readAll(orgId: string): Promise<void> {
    for (let admission: Admission | undefined = await enter(orgId); admission;) {
      const began = performance.now();
      let next: Promise<Admission> | undefined;
      try {
        const found = !signal.aborted && !isEnding && (await readNext(ctx, orgId, signal));
        // Before the release: an organization without a request loses its place to those that have used more.
        if (found) next = enter(orgId);
      } finally {
        admission.release(performance.now() - began);
      }
      admission = await next;
    }
    busy.delete(orgId);
  }

  try {
    do {
      // Volumes that another worker has claimed or locked remain due for a while.
      const dueAt = addMillis(ctx.now(), -ctx.settings.volumeSampleMs);
      for (const orgId of await organizationsDue(ctx.pool, dueAt)) {
        if (!busy.has(orgId)) busy.set(orgId, readAll(orgId));
      }
      const waiting = new AbortController();
      await Promise.race([Promise.all(busy.values()), sleep(POLL_MS, waiting.signal)]);
      waiting.abort();
    } while (busy.size > 0 && !signal.aborted);
  } finally {
    // After an error only the readings in progress are awaited.
    isEnding = true;
    await Promise.allSettled(busy.values());
  }
}

async function readNext(ctx: Context, orgId: string, signal: AbortSignal): Promise<boolean> {
  const interval = ctx.settings.volumeSampleMs;
  const dueAt = addMillis(ctx.now(), -interval);
  const id = await claimUnsampled(ctx.pool, orgId, dueAt, addMillis(dueAt, interval / TRIES_PER_INTERVAL));
  if (id === undefined) return false;
  try {
    await sample(ctx, orgId, id, signal);
  } catch (error) {
    if (!signal.aborted) {
      const message = 'cannot measure a volume; its latest reading counts for two intervals';
      ctx.log.warn({ err: error, orgId, volumeId: id }, message);
    }
  }
  return true;
}

async function sample(ctx: Context, orgId: string, id: string, signal: AbortSignal): Promise<void> {
  const interval = ctx.settings.volumeSampleMs;
  const began = ctx.now();
  const kib = await measureInTime(ctx, orgId, id, signal);
  await inTransaction(ctx.pool, async (tx) => {
    const volume = await lockVolume(tx, orgId, id);
    if (volume?.status !== 'active') return;
    await setSampled(tx, orgId, id, began);
    // The volume has never had data.
    if (kib === undefined) return;
    const at = ctx.now();
    await insertReading(tx, orgId, id, { at, until: addMillis(at, VALID_INTERVALS * interval), kib });
  });
}

async function measureInTime(
  ctx: Context,
  orgId: string,
  id: string,
  signal: AbortSignal,
): Promise<number | undefined> {
  const millis = Math.min(MAX_READING_MS, ctx.settings.volumeSampleMs / TRIES_PER_INTERVAL / 2);
  // Not AbortSignal.timeout(): in a combined signal it may be garbage-collected early.
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new Error(`it took longer than ${millis} ms`)), millis);
  try {
    return await measureVolume(ctx, orgId, id, AbortSignal.any([signal, limit.signal]));
  } finally {
    clearTimeout(timer);
  }
}
