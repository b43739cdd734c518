import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { claimUnsampled, insertReading } from './accrual-queries.js';
import { lockVolume } from './queries.js';

const BATCH = 20;
/** A reading stands for this many intervals, unless another comes: one may be late or fail. */
const INTERVALS = 2;

/**
 * Reads the size of every volume whose last reading is an interval old. Of several workers each takes others. A volume is taken before it is
 * read: what a crash cuts short has its reading an interval later, and the one before stands until then.
 */
export async function sampleVolumes(ctx: Context, signal: AbortSignal): Promise<void> {
  const interval = ctx.settings.volumeSampleMs;
  for (let taken = BATCH; taken === BATCH && !signal.aborted;) {
    const now = ctx.now();
    const due = await claimUnsampled(ctx.pool, addMillis(now, -interval), now, BATCH);
    for (const { org_id: orgId, id } of due) {
      if (signal.aborted) return;
      try {
        await sample(ctx, orgId, id, signal);
      } catch (error) {
        if (signal.aborted) return;
        ctx.log.error({ err: error, orgId, volumeId: id }, 'the size of a volume was not read');
      }
    }
    taken = due.length;
  }
}

async function sample(ctx: Context, orgId: string, id: string, signal: AbortSignal): Promise<void> {
  const kib = await ctx.volumes.measure(orgId, id, signal);
  // Nothing has ever been in it.
  if (kib === undefined) return;
  await inTransaction(ctx.pool, async (tx) => {
    const volume = await lockVolume(tx, orgId, id);
    if (volume?.status !== 'active') return;
    const at = ctx.now();
    const until = addMillis(at, INTERVALS * ctx.settings.volumeSampleMs);
    await insertReading(tx, orgId, id, { at, until, kib });
  });
}
