import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { claimUnsampled, insertReading, organizationsDue, setSampled } from './accrual-queries.js';
import { measureVolume } from './engine-storage.js';
import { lockVolume } from './queries.js';

/** Concurrent readings are of different organizations. */
const CONCURRENCY = 4;
/** The next reading may be late or fail. */
const VALID_INTERVALS = 2;
const TRIES_PER_INTERVAL = 6;
/** Enough for millions of files. */
const MAX_READING_MS = 5 * 60_000;
const POLL_MS = 1_000;

/** Claims expire after a part of an interval, so that interrupted and failed readings are retried. */
export async function sampleVolumes(ctx: Context, signal: AbortSignal): Promise<void> {
  const shares = fairShares();
  const busy = new Map<string, Promise<void>>();
  let due: string[] = [];
  let polledAt = -Infinity;

  async function readOne(orgId: string): Promise<void> {
    const began = performance.now();
    const found = await readNext(ctx, orgId, signal);
    shares.add(orgId, performance.now() - began);
    busy.delete(orgId);
    if (found) due.push(orgId);
  }

  try {
    while (!signal.aborted) {
      // Volumes that another worker has claimed or locked remain due for a while.
      if (performance.now() - polledAt > POLL_MS) {
        const dueAt = addMillis(ctx.now(), -ctx.settings.volumeSampleMs);
        const found = await organizationsDue(ctx.pool, dueAt);
        const present = new Set([...due, ...busy.keys()]);
        const added = found.filter((orgId) => !present.has(orgId));
        shares.join(added, [...present]);
        for (const orgId of added) due.push(orgId);
        polledAt = performance.now();
      }
      while (busy.size < CONCURRENCY && due.length > 0) {
        const next = shares.next(due);
        due = due.filter((orgId) => orgId !== next);
        busy.set(next, readOne(next));
      }
      if (busy.size === 0) return;
      const waiting = new AbortController();
      await Promise.race([...busy.values(), sleep(POLL_MS, waiting.signal)]);
      waiting.abort();
    }
  } finally {
    await Promise.allSettled(busy.values());
  }
}

/** Measures organizations with little used time first. A new one starts at the current minimum, so idle time saves up nothing. */
function fairShares(): {
  join(added: readonly string[], present: readonly string[]): void;
  next(waiting: readonly string[]): string;
  add(orgId: string, millis: number): void;
} {
  const used = new Map<string, number>();
  const usedBy = (orgId: string) => used.get(orgId) ?? 0;
  const leastUsed = (first: string, orgId: string) => (usedBy(orgId) < usedBy(first) ? orgId : first);
  return {
    join(added, present) {
      if (present.length === 0) return;
      const least = usedBy(present.reduce(leastUsed));
      for (const orgId of added) used.set(orgId, Math.max(usedBy(orgId), least));
    },
    next: (waiting) => waiting.reduce(leastUsed),
    add: (orgId, millis) => void used.set(orgId, usedBy(orgId) + millis),
  };
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
